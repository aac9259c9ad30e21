import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chooseWorkloadPorts, writeFastExample } from './support/cluster.js';
import {
  RunningProgram,
  findBundle,
  killAll,
  listProcessesUsing,
  runToEnd,
} from './support/processes.js';

/** Directory of all files of these clusters, so that leftover processes can be found. */
let directory = '';
/** Directory of the example, which outlives the clusters. */
let exampleDirectory = '';
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cloudless-dev-'));
  exampleDirectory = await mkdtemp(join(tmpdir(), 'cloudless-example-'));
  await writeFastExample(join(exampleDirectory, 'hello.yaml'));
});
afterEach(async () => {
  const left = listProcessesUsing(directory);
  killAll(left);
  const files = await readdir(directory);
  await Promise.all(
    files.map((file) => rm(join(directory, file), { recursive: true, force: true })),
  );
  expect({ left, files }).toEqual({ left: [], files: [] });
});
afterAll(async () => {
  for (const path of [directory, exampleDirectory])
    await rm(path, { recursive: true, force: true });
});

const example = (): readonly string[] => ['--example', join(exampleDirectory, 'hello.yaml')];
const anyPorts = ['--port', '0', '--ops-port', '0', '--agent-port', '0'];
/**
 * Returns the command line of dev-cluster. Agents run processes only, unless a test overrides it.
 */
const createArgs = (...more: readonly string[]): readonly string[] => [
  findBundle('dev-cluster'),
  ...['--workload-port', String(chooseWorkloadPorts(3_000)), '--runtime', 'process'],
  ...more,
];
const createEnv = (): NodeJS.ProcessEnv => ({ TMPDIR: directory, NO_COLOR: '1' });
const startCluster = (...more: readonly string[]): RunningProgram =>
  RunningProgram.start(process.execPath, createArgs(...more), createEnv());
const runToExit = (...more: readonly string[]) =>
  runToEnd(process.execPath, createArgs(...more), { env: createEnv() });

/** Waits before the next look at the processes. */
/** Time after which a supervisor without a client has ended: 30 s, and some more. */
const SUPERVISOR_ENDS_MS = 45_000;
const isSupervisor = (line: string): boolean => line.includes('main.mjs supervisor ');
const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 50));
/** Resolves when no process of the clusters is left. */
async function waitUntilNothingRuns(): Promise<void> {
  while (listProcessesUsing(directory).length > 0) await pause();
}

/** Returns the text after a label in the start-up output. */
async function readLabel(cluster: RunningProgram, label: string): Promise<string> {
  const line = await cluster.waitForLine((text) => text.trim().startsWith(`${label} `));
  return line.trim().split(/\s+/).slice(1).join(' ');
}
const getPort = (url: string): string => new URL(url.split(' ')[0] ?? '').port;

describe('dev-cluster', () => {
  it('runs the demo with --demo and exits', async () => {
    const { code, stdout, stderr } = await runToExit(...anyPorts, ...example(), '--demo');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const steps = [
      'scale to 5',
      'a rolling update',
      'kill -9 one replica',
      'what the replicas print',
      'run a command',
      'what happened',
      'delete',
    ];
    for (const step of steps) expect(stdout).toContain(`── ${step}`);
    expect(stdout).toMatch(/ready again after \d+ ms: same replica, same node, one restart/);
    expect(stdout).toContain('workload default/hello: deleted');
    expect(stdout).toContain('Demo finished: every step succeeded.');
  });

  it('runs with TLS and identities with --secure, with no token in an argument list', async () => {
    const cluster = startCluster(...anyPorts, ...example(), '--agents', '2', '--secure');
    const [url = ''] = (await readLabel(cluster, 'API')).split(' ');
    const configFile = await readLabel(cluster, 'Admin');
    await cluster.waitForLine((line) => line.startsWith('Ctrl-C'));
    const getNodes = (env: NodeJS.ProcessEnv) =>
      runToEnd(process.execPath, [findBundle('cloudlessctl'), 'node', 'list', '--no-headers'], {
        env: { CLOUDLESS_SERVER: '', ...env },
      });
    const listed = await getNodes({ CLOUDLESS_CONFIG: configFile });
    expect(listed.stdout).toMatch(/^agent-1 +Ready .*\nagent-2 +Ready /);
    const refused = await getNodes({
      CLOUDLESS_CONFIG: join(directory, 'no-config.yaml'),
      CLOUDLESS_SERVER: url,
    });
    expect(refused.code).not.toBe(0);
    const texts = listProcessesUsing(directory).join('\n');
    expect(texts).toContain('--join-token-file');
    expect(texts).not.toMatch(/\bclu?1\.\w+\./);
    // the command for curl that it shows
    const curl = await cluster.waitForLine((line) => line.includes('curl -s'));
    const answer = await runToEnd('sh', ['-c', curl]);
    expect(JSON.parse(answer.stdout)).toMatchObject({ name: 'hello' });
    expect(await cluster.kill('SIGINT')).toBe(0);
  });

  it('serves until SIGINT, and a second cluster on one of its ports exits with the option to change', async () => {
    const cluster = startCluster(...anyPorts, ...example());
    const api = await readLabel(cluster, 'API');
    const url = api.split(' ')[0] ?? '';
    const health = await readLabel(cluster, 'Health');
    expect(await readLabel(cluster, 'Runtime')).toBe(
      'processes; containers are off because of --runtime process',
    );
    const agentPort = (await readLabel(cluster, 'agent-1')).split(':').at(-1) ?? '';
    await cluster.waitForLine((line) => line.startsWith('Ctrl-C'));
    expect(await (await fetch(health)).json()).toMatchObject({ status: 'ok' });
    const listed = await runToEnd(process.execPath, [
      findBundle('cloudlessctl'),
      '--server',
      url,
      'get',
      'workload',
      'hello',
      '-o',
      'json',
    ]);
    expect(JSON.parse(listed.stdout)).toMatchObject({
      name: 'hello',
      status: { phase: 'RUNNING', readyReplicas: 3 },
    });
    const firstProcesses = listProcessesUsing(directory);
    const folders = await readdir(directory);

    const conflicts = [
      {
        flags: ['--port', getPort(api), '--ops-port', '0', '--agent-port', '0'],
        port: getPort(api),
        flag: '--port',
      },
      {
        flags: ['--port', '0', '--ops-port', getPort(health), '--agent-port', '0'],
        port: getPort(health),
        flag: '--ops-port',
      },
      {
        flags: ['--port', '0', '--ops-port', '0', '--agent-port', agentPort],
        port: agentPort,
        flag: '--agent-port',
      },
    ];
    const results = [];
    for (const { flags, port, flag } of conflicts) {
      const { code, stderr } = await runToExit(...flags);
      const listLeft = (): readonly string[] =>
        listProcessesUsing(directory).filter((line) => !firstProcesses.includes(line));
      // A supervisor that was just being started when its agent ended ends by itself, after 30 s.
      const begunAt = performance.now();
      while (listLeft().some(isSupervisor) && performance.now() - begunAt < SUPERVISOR_ENDS_MS)
        await pause();
      const left = listLeft();
      killAll(left);
      const namesPort =
        stderr.includes(`port ${port} on 127.0.0.1 is in use`) &&
        stderr.includes(`choose another port with ${flag}`);
      results.push({ flag, code, namesPort, left, folders: await readdir(directory) });
    }
    const stopping = await cluster.kill('SIGINT');
    expect(results).toEqual(
      conflicts.map(({ flag }) => ({ flag, code: 1, namesPort: true, left: [], folders })),
    );
    expect(stopping).toBe(0);
  });

  it('prints the runtime of its agents with the reason, and exits when --runtime cri is impossible', async () => {
    const socket = join(directory, 'no.sock');
    const without = startCluster(
      ...anyPorts,
      '--agents',
      '1',
      '--runtime',
      'auto',
      '--cri-socket',
      socket,
    );
    expect(await readLabel(without, 'Runtime')).toMatch(
      /^processes; containers are not used: (no container runtime answers at|the agent must run as root to use the container runtime at) .*no\.sock.*; `sudo node tools\/containers\/setup\.mjs install` installs one$/,
    );
    expect(await without.kill('SIGINT')).toBe(0);
    const { code, stderr } = await runToExit(
      ...anyPorts,
      '--agents',
      '1',
      '--runtime',
      'cri',
      '--cri-socket',
      socket,
    );
    expect(code).toBe(1);
    expect(stderr).toContain('--runtime cri: ');
    expect(stderr).toContain('or run without containers with --runtime process');
  });

  it('exits with a message when its coordinator ends', async () => {
    const cluster = startCluster(...anyPorts);
    await cluster.waitForLine((line) => line.startsWith('Ctrl-C'));
    const coordinator =
      listProcessesUsing(directory).find((line) =>
        line.includes('dist/apps/coordinator/main.mjs'),
      ) ?? '';
    process.kill(Number(coordinator.split(' ')[0]), 'SIGKILL');
    expect(await cluster.exited).toBe(1);
    expect(cluster.lines.join('\n')).toMatch(
      /^dev-cluster: coordinator has ended; --data-dir DIR would keep its log\. Its last lines:\n {2}\S+ (INFO|WARN) .*$/m,
    );
  });

  it.each([
    {
      name: 'an unknown flag',
      flags: ['--prot', '1'],
      message: 'unknown flag --prot; see --help for the flags',
    },
    {
      name: 'an unknown runtime',
      flags: ['--runtime', 'docker'],
      message: '--runtime: "docker" must be one of auto, process, cri',
    },
    {
      name: 'an invalid port',
      flags: ['--port', '99999'],
      message: '--port: "99999" must be a whole number from 0 to 65535',
    },
  ])('rejects $name', async ({ flags, message }) => {
    expect(await runToExit(...flags)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(message) as string,
    });
  });

  it('exits on SIGINT while it waits for its example workload', async () => {
    const manifest = join(directory, 'never-ready.yaml');
    await writeFile(
      manifest,
      'name: never\nspec: { command: [sleep, "1000"], ports: [{ name: http, containerPort: 80 }] }\n',
    );
    const cluster = startCluster(...anyPorts, '--example', manifest);
    await cluster.waitForLine((line) =>
      line.includes('waiting for port http to accept connections'),
    );
    process.kill(cluster.pid, 'SIGINT');
    // the waiting cloudlessctl must end too; otherwise it would try to reconnect for another minute
    await expect(cluster.waitForLine((line) => line.includes('reconnecting'))).rejects.toThrow(
      'ended before',
    );
    expect(await cluster.exited).toBe(130);
    await rm(manifest);
  });

  it('leaves no process behind after SIGKILL during its start', async () => {
    const cluster = startCluster(...anyPorts);
    await cluster.waitForLine((line) => line.startsWith('Starting'));
    while (!listProcessesUsing(directory).some((line) => line.includes('--name agent-')))
      await pause();
    await cluster.kill('SIGKILL');
    await waitUntilNothingRuns();
  });
});
