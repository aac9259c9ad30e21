// `node --test tools/containers/`: as root a second set-up is made beside any that is there, used,
// broken, and removed.
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

describe('settings', () => {
  for (const { args, says } of [
    {
      args: ['status', '--registry', '0.0.0.0:5000'],
      says: /--registry is "0.0.0.0:5000"; it must look like 127.0.0.1:5000/,
    },
    { args: ['status', '--dir', 'relative'], says: /--dir is "relative"; it must look like \/var/ },
    { args: ['status', '--dir', '/var/lib/../x'], says: /--dir is .* must look like/ },
    { args: ['status', '--bridge', 'a-name-too-long-for-linux'], says: /--bridge is / },
    {
      args: ['status', '--dir', '/nowhere/x', '--run-dir', `/${'x'.repeat(100)}`],
      says: /over 107 characters; choose a shorter --run-dir/,
    },
    { args: ['status', '--nonsense'], says: /Unknown option '--nonsense'/ },
  ]) {
    it(`refuses ${args.slice(1).join(' ').slice(0, 40)}`, () =>
      assert.throws(() => parseSettings(args, {}), says));
  }

  it('takes a flag before a variable, and a variable before what was kept; what was kept cannot be changed', (t) => {
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

  it('never removes a directory that it did not make', async (t) => {
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
  'what tests find',
  { skip: process.getuid() === 0 ? false : 'needs root: others find nothing' },
  () => {
    const nowhere = {
      PATH: process.env.PATH,
      CLOUDLESS_CONTAINERS_DIR: '/nowhere/x',
      CLOUDLESS_CONTAINERS_RUN_DIR: '/nowhere/y',
    };

    it('is the socket that is named, when there is one', (t) => {
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

    it('is nothing without a set-up, with the command that makes one, and whether that is a failure', () => {
      const found = findContainers({
        ...nowhere,
        CLOUDLESS_CONTAINERS: 'required',
        CLOUDLESS_CRI_SOCKET: '',
      });
      assert.equal(found.required, true);
      assert.equal(found.socket, undefined);
      assert.match(
        found.whyNot,
        /no containerd runs for them; `sudo .* tools\/containers\/setup.mjs install` starts one/,
      );
    });
  },
);

describe('protobuf', () => {
  const schema = {
    name: [1, 'string'],
    size: [2, 'number'],
    on: [3, 'bool'],
    inner: [16, { tag: [1, 'string'] }, 'repeated'],
  };
  const message = { name: 'ä', size: 300, on: true, inner: [{ tag: 'a' }, { tag: '' }] };

  it('reads what it wrote, with the bytes of the published format', () => {
    assert.deepEqual(decode(schema, encode(schema, message)), message);
    assert.equal(encode({ a: [1, 'number'] }, { a: 150 }).toString('hex'), '089601'); // the example of the format's documentation
  });

  it('skips fields it does not know and refuses what was cut off', () => {
    assert.deepEqual(decode({ size: [2, 'number'] }, encode(schema, message)), { size: 300 });
    const bytes = encode({ name: [1, 'string'] }, { name: 'word' });
    assert.throws(() => decode(schema, bytes.subarray(0, -1)), /malformed/);
  });
});

const skip =
  process.getuid() === 0 ? false : 'needs root: network, mounts and cgroups are made for real';

describe('a set-up beside others', { skip }, () => {
  it('runs pods, also from an image it has while the registry is away, and leaves nothing', async (t) => {
    const place = await aPlace(t);
    const { socket, processes, images } = place.answer('install');
    assert.ok(images.includes('nginx:alpine'));
    assert.deepEqual(
      place.answer('install').processes,
      processes,
      'a second install restarts nothing',
    );
    await callCri(socket, 'PullImage', { image: { image: 'nginx:alpine' } });
    process.kill(processes.registry, 'SIGKILL');
    assert.equal(place.run('status').status, 3);
    assert.equal(place.answer('check').pulled, false);

    const pod = await place.runPod(socket);
    place.answer('stop');
    assert.ok(place.traces().length > 0, 'pods go on without containerd');
    place.answer('start');
    assert.equal(
      (await callCri(socket, 'PodSandboxStatus', { podSandboxId: pod })).status.state,
      0,
      'and are found again',
    );

    place.answer('remove');
    assert.deepEqual(place.traces(), []);
    assert.match(place.run('remove').stderr, /nothing to remove/);
  });

  it('is removed as well when containerd was killed and cannot start, and the settings are gone', async (t) => {
    const place = await aPlace(t);
    const { socket, processes } = place.answer('install');
    const { pulled, answer } = place.answer('check');
    assert.deepEqual({ pulled, answer }, { pulled: true, answer: '<h1>Welcome to nginx!</h1>' });
    await place.runPod(socket);
    rmSync(join(place.dir, 'cloudless-containers.json'));
    process.kill(processes.containerd, 'SIGKILL');
    appendFileSync(join(place.dir, 'etc', 'containerd.toml'), 'broken [');
    assert.match(place.run('remove').stderr, /containerd ended at once.*\n.*failed to load TOML/);
    assert.deepEqual(place.traces(), []);
  });

  it('does not take what belongs to others', async (t) => {
    const place = await aPlace(t);
    const server = createServer();
    await new Promise((resolve) => server.listen(place.port, '127.0.0.1', resolve));
    t.after(() => server.close());
    assert.match(
      place.run('install').stderr,
      /cannot listen on 127.0.0.1:\d+: another program listens there; choose another with --/,
    );
    assert.match(
      place.run('install', ['--bridge', 'lo']).stderr,
      /a network interface lo already; choose another with --bridge/,
    );
    assert.match(
      place.run('install', ['--dir', tmpdir()]).stderr,
      /exists and was not made by "install"; choose another --dir/,
    );
    assert.deepEqual(place.traces(), []);
  });
});

/** A set-up of its own: free port, own names, and all traces of it on the machine. */
async function aPlace(t) {
  t.after(() => run('remove')); // before the directories go
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
  const answer = (command) => {
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
  return { dir, port, run, answer, runPod, traces: () => tracesOf({ dir, runDir, bridge, pods }) };
}

function tracesOf({ dir, runDir, bridge, pods }) {
  const hierarchies = ['', ...readdirSync('/sys/fs/cgroup')].map((name) =>
    join('/sys/fs/cgroup', name, 'k8s.io'),
  );
  const cgroups = pods.flatMap((pod) => hierarchies.map((hierarchy) => join(hierarchy, pod)));
  const linesOf = (text) =>
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
    ...[dir, runDir, `/sys/class/net/${bridge}`, ...cgroups].filter((place) => existsSync(place)),
    ...linesOf([...commands, rules, results, read('/proc/self/mountinfo')].join('\n')),
  ];
}

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return ''; // the process ended meanwhile
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
