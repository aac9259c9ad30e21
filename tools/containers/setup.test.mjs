// `node --test tools/containers/`: as root, the tests install a second set-up beside any other, use
// it, break it, and remove it.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { callCri } from './cri.mjs';
import { findContainers } from './find.mjs';
import { decode, encode } from './protobuf.mjs';
import { removeAll } from './removal.mjs';
import { parseSettings } from './settings.mjs';

const script = fileURLToPath(new URL('setup.mjs', import.meta.url));

describe('parseSettings', () => {
  for (const { args, message } of [
    {
      args: ['status', '--registry', '0.0.0.0:5000'],
      message: /--registry is "0.0.0.0:5000"; it must look like 127.0.0.1:5000/,
    },
    {
      args: ['status', '--dir', 'relative'],
      message: /--dir is "relative"; it must look like \/var/,
    },
    { args: ['status', '--dir', '/var/lib/../x'], message: /--dir is .* must look like/ },
    { args: ['status', '--busybox', 'busybox'], message: /--busybox is "busybox"/ },
    { args: ['status', '--bridge', 'a-name-too-long-for-linux'], message: /--bridge is / },
    {
      args: ['status', '--dir', '/nowhere/x', '--run-dir', `/${'x'.repeat(100)}`],
      message: /over 107 characters; choose a shorter --run-dir/,
    },
    { args: ['status', '--nonsense'], message: /Unknown option '--nonsense'/ },
  ]) {
    it(`refuses ${args.slice(1).join(' ').slice(0, 40)}`, () =>
      assert.throws(() => parseSettings(args, {}), message));
  }

  it('prefers flags to variables and variables to kept settings, and refuses other values than kept', (t) => {
    const dir = scratchDir(t);
    const env = { CLOUDLESS_CONTAINERS_DIR: dir, CLOUDLESS_CONTAINERS_BRIDGE: 'br-env' };
    assert.equal(parseSettings(['status'], env).settings.bridge, 'br-env');
    assert.equal(parseSettings(['status', '--bridge', 'br-flag'], env).settings.bridge, 'br-flag');
    writeFileSync(
      join(dir, 'cloudless-containers.json'),
      JSON.stringify({ dir, bridge: 'br-kept' }),
    );
    assert.equal(parseSettings(['status', '--dir', dir], {}).settings.bridge, 'br-kept');
    assert.throws(
      () => parseSettings(['status'], env),
      /--bridge is br-env, but .* was installed with br-kept; remove that first/,
    );
  });
});

describe('removeAll', () => {
  it('refuses to remove a directory that install did not create', async (t) => {
    const dir = scratchDir(t);
    writeFileSync(join(dir, 'precious'), '');
    const { settings } = parseSettings(['remove', '--dir', dir, '--run-dir', `${dir}-run`], {});
    await assert.rejects(
      removeAll(settings, () => {}),
      /was not made by "install" .* so it stays/,
    );
    assert.ok(existsSync(join(dir, 'precious')));
  });
});

describe(
  'findContainers',
  { skip: process.getuid() === 0 ? false : 'needs root: other users find no runtime' },
  () => {
    const nowhere = {
      PATH: process.env.PATH,
      CLOUDLESS_CONTAINERS_DIR: '/nowhere/x',
      CLOUDLESS_CONTAINERS_RUN_DIR: '/nowhere/y',
    };

    it('returns the socket of CLOUDLESS_CRI_SOCKET when that exists', (t) => {
      const socket = join(scratchDir(t), 'some.sock');
      const env = { ...nowhere, CLOUDLESS_CRI_SOCKET: socket };
      assert.deepEqual(findContainers(env), {
        required: false,
        env: {},
        whyNot: `CLOUDLESS_CRI_SOCKET is ${socket}, and there is no such socket`,
      });
      writeFileSync(socket, '');
      assert.equal(findContainers(env).socket, socket);
    });

    it('returns the command to install a set-up, and required, when there is none', () => {
      const result = findContainers({
        ...nowhere,
        CLOUDLESS_CONTAINERS: 'required',
        CLOUDLESS_CRI_SOCKET: '',
      });
      assert.equal(result.required, true);
      assert.equal(result.socket, undefined);
      assert.match(
        result.whyNot,
        /no containerd runs for them; `sudo .* tools\/containers\/setup.mjs install` starts one/,
      );
    });
  },
);

describe('encode and decode', () => {
  const schema = {
    name: [1, 'string'],
    size: [2, 'number'],
    on: [3, 'bool'],
    inner: [16, { tag: [1, 'string'] }, 'repeated'],
  };
  const message = { name: 'ä', size: 300, on: true, inner: [{ tag: 'a' }, { tag: '' }] };

  it('round-trip a message, in the bytes of the published format', () => {
    assert.deepEqual(decode(schema, encode(schema, message)), message);
    assert.equal(encode({ a: [1, 'number'] }, { a: 150 }).toString('hex'), '089601'); // example of the documentation
  });

  it('skip unknown fields and refuse truncated bytes', () => {
    assert.deepEqual(decode({ size: [2, 'number'] }, encode(schema, message)), { size: 300 });
    const bytes = encode({ name: [1, 'string'] }, { name: 'word' });
    assert.throws(() => decode(schema, bytes.subarray(0, -1)), /malformed/);
  });
});

const skip =
  process.getuid() === 0 ? false : 'needs root: creates network interfaces, mounts and cgroups';

describe('setup.mjs', { skip }, () => {
  it('runs pods, also while the registry does not run, and leaves nothing behind after remove', async (t) => {
    const setup = await createTestSetup(t);
    const { socket, processes, images } = setup.runCommand('install');
    assert.ok(images.includes('nginx:alpine'));
    assert.deepEqual(
      setup.runCommand('install').processes,
      processes,
      'a second install restarts nothing',
    );
    await callCri(socket, 'PullImage', { image: { image: 'nginx:alpine' } });
    process.kill(processes.registry, 'SIGKILL');
    assert.equal(setup.run('status').status, 3);
    assert.equal(setup.runCommand('check').pulled, false);

    const pod = await setup.runPod(socket);
    setup.runCommand('stop');
    assert.ok(setup.listTraces().length > 0, 'pods continue without containerd');
    setup.runCommand('start');
    assert.equal(
      (await callCri(socket, 'PodSandboxStatus', { podSandboxId: pod })).status.state,
      0,
      'containerd finds the pod again',
    );

    setup.runCommand('remove');
    assert.deepEqual(setup.listTraces(), []);
    assert.match(setup.run('remove').stderr, /nothing to remove/);
  });

  it('removes the set-up also when containerd cannot start and the settings file was deleted', async (t) => {
    const setup = await createTestSetup(t);
    const { socket, processes } = setup.runCommand('install');
    const { pulled, answer } = setup.runCommand('check');
    assert.deepEqual({ pulled, answer }, { pulled: true, answer: '<h1>Welcome to nginx!</h1>' });
    await setup.runPod(socket);
    rmSync(join(setup.dir, 'cloudless-containers.json'));
    process.kill(processes.containerd, 'SIGKILL');
    appendFileSync(join(setup.dir, 'etc', 'containerd.toml'), 'broken [');
    assert.match(setup.run('remove').stderr, /containerd ended at once.*\n.*failed to load TOML/);
    assert.deepEqual(setup.listTraces(), []);
  });

  it('refuses a port, bridge or directory that is in use, and changes nothing', async (t) => {
    const setup = await createTestSetup(t);
    const server = createServer();
    await new Promise((resolve) => server.listen(setup.port, '127.0.0.1', resolve));
    t.after(() => server.close());
    assert.match(
      setup.run('install').stderr,
      /cannot listen on 127.0.0.1:\d+: another program listens there; choose another with --/,
    );
    assert.match(
      setup.run('install', ['--bridge', 'lo']).stderr,
      /a network interface lo already; choose another with --bridge/,
    );
    assert.match(
      setup.run('install', ['--dir', tmpdir()]).stderr,
      /exists and was not made by "install"; choose another --dir/,
    );
    assert.deepEqual(setup.listTraces(), []);
  });
});

/** Returns the commands of a set-up with its own names and port, and a list of all its traces. */
async function createTestSetup(t) {
  t.after(() => run('remove')); // runs before the directories are deleted
  const dir = join(scratchDir(t), 'lib');
  const runDir = join(scratchDir(t), 'run');
  const bridge = `cldt${process.pid}`;
  const subnet = `10.${200 + (process.pid % 30)}.${(process.pid >> 8) % 256}.0/24`;
  const port = await freePort();
  const flags = [
    '--dir',
    dir,
    '--run-dir',
    runDir,
    '--bridge',
    bridge,
    '--registry',
    `127.0.0.1:${port}`,
  ];
  const run = (command, more = []) => {
    const args = [script, command, ...flags, '--subnet', subnet, '--json', ...more];
    return spawnSync(process.execPath, args, { encoding: 'utf8' });
  };
  /** Runs a command that must succeed, and returns its result. */
  const runCommand = (command) => {
    const { status, stdout, stderr } = run(command);
    assert.equal(status, 0, stderr);
    return JSON.parse(stdout);
  };
  const pods = [];
  const runPod = async (socket) => {
    const config = { metadata: { name: 'left', uid: String(process.pid), namespace: 'test' } };
    const { podSandboxId } = await callCri(socket, 'RunPodSandbox', { config });
    pods.push(podSandboxId);
    return podSandboxId;
  };
  return {
    dir,
    port,
    run,
    runCommand,
    runPod,
    listTraces: () => listTraces({ dir, runDir, bridge, pods }),
  };
}

/** Lists files, interfaces, cgroups, processes, rules and mounts of a set-up and its pods. */
function listTraces({ dir, runDir, bridge, pods }) {
  const hierarchies = ['', ...readdirSync('/sys/fs/cgroup')].map((name) =>
    join('/sys/fs/cgroup', name, 'k8s.io'),
  );
  const cgroups = pods.flatMap((pod) => hierarchies.map((hierarchy) => join(hierarchy, pod)));
  const findLines = (text) =>
    text
      .split('\n')
      .filter((line) =>
        [`${dir}/`, `${runDir}/`, `cloudless-${bridge}`, ...pods].some((own) => line.includes(own)),
      );
  const commands = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => read(`/proc/${pid}/cmdline`).replaceAll('\0', ' '));
  const rules = spawnSync('iptables', ['-t', 'nat', '-S'], { encoding: 'utf8' }).stdout ?? '';
  const results = existsSync('/var/lib/cni/results')
    ? readdirSync('/var/lib/cni/results').join('\n')
    : '';
  return [
    ...[dir, runDir, `/sys/class/net/${bridge}`, ...cgroups].filter((path) => existsSync(path)),
    ...findLines([...commands, rules, results, read('/proc/self/mountinfo')].join('\n')),
  ];
}

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return ''; // the process has ended
  }
}

function scratchDir(t) {
  const dir = mkdtempSync(join(tmpdir(), 'cloudless-setup-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}
