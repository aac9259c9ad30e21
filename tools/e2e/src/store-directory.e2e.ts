import { mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { createCoordinatorClient, fromConnectError, type CoordinatorClient } from '@cloudless/api';
import { RealCluster } from './support/cluster.js';
import { describeOnDiskImages, DiskImage } from './support/disk-image.js';
import { findNamespaceProblem } from './support/namespaces.js';
import { findBundle, RunningProgram, runToEnd } from './support/processes.js';

const IMAGE_MIB = 64;
let directory = '';
let dataDir = '';
const started: RunningProgram[] = [];
const cleanups: (() => Promise<void>)[] = [];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cloudless-e2e-store-'));
  dataDir = join(directory, 'data');
});
afterEach(async () => {
  for (const program of started.splice(0)) await program.kill('SIGKILL');
  for (const cleanup of cleanups.splice(0)) await cleanup();
  rmSync(directory, { recursive: true });
});

/**
 * Starts a coordinator on the data directory.
 * @param inside - A command that runs the coordinator, such as unshare(1). Default: none.
 */
function startCoordinator(...inside: readonly string[]): RunningProgram {
  const program = [
    findBundle('coordinator'),
    '--tls',
    'off',
    '--port',
    '0',
    '--ops-port',
    '0',
    '--data-dir',
    dataDir,
  ];
  const [executable = process.execPath, ...before] = [...inside, process.execPath];
  const running = RunningProgram.start(executable, [...before, ...program]);
  started.push(running);
  return running;
}

interface ServingCoordinator {
  readonly url: string;
  readonly running: RunningProgram;
  readonly client: CoordinatorClient;
  /** Requests a path of the ops port. Returns status and body. */
  readonly fetchPage: (path: string) => Promise<string>;
}

async function waitUntilServing(running = startCoordinator()): Promise<ServingCoordinator> {
  const { url, opsUrl } = await running.waitForLog('coordinator ready');
  const fetchPage = async (path: string): Promise<string> => {
    const response = await fetch(`${String(opsUrl)}${path}`);
    return `${response.status} ${await response.text()}`;
  };
  return {
    url: String(url),
    running,
    client: createCoordinatorClient(createGrpcTransport({ baseUrl: String(url) })),
    fetchPage,
  };
}

/**
 * Creates a workload.
 * @returns `acknowledged`, or the kind of the error.
 */
async function writeWorkload({ client }: ServingCoordinator, name: string): Promise<string> {
  try {
    await client.createWorkload({ name, spec: { command: ['true'], replicas: 0 } });
    return 'acknowledged';
  } catch (reason) {
    return fromConnectError(reason).kind;
  }
}

/**
 * Deletes the data directory in one step, as the coordinator sees it: a coordinator that finds its
 * data file without the lock ends.
 */
function deleteDataDirectory(): void {
  renameSync(dataDir, `${dataDir}-deleted`);
  rmSync(`${dataDir}-deleted`, { recursive: true });
}

async function listNames({ client }: ServingCoordinator): Promise<readonly string[]> {
  return (await client.listWorkloads({})).workloads.map(({ name }) => name);
}

/**
 * Command that sets up the loopback interface of a new network namespace, then runs its arguments.
 */
const LOOPBACK = ['/bin/sh', '-c', 'ip link set lo up && exec "$0" "$@"'];
const namespaces = [
  { name: 'network namespace', inside: ['unshare', '--net', ...LOOPBACK] },
  {
    name: 'network and PID namespace',
    inside: ['unshare', '--net', '--pid', '--fork', '--mount-proc', '--kill-child', ...LOOPBACK],
  },
];

const skipReason = findNamespaceProblem();
if (skipReason !== undefined)
  process.stderr.write(`SKIPPED coordinators in namespaces: ${skipReason}\n`);
const describeNamespaces = skipReason === undefined ? describe : describe.skip;

describeNamespaces(
  `second coordinator on a data directory${skipReason === undefined ? '' : ` (skipped: ${skipReason})`}`,
  () => {
    it.each(namespaces)(
      'is refused in another $name, and starts after the first was killed',
      async ({ inside }) => {
        const first = await waitUntilServing();
        const second = startCoordinator(...inside);
        expect(await second.exited).not.toBe(0);
        expect(second.lines.join('\n')).toContain(
          `data directory ${dataDir} is in use by process ${first.running.pid}`,
        );
        expect(await writeWorkload(first, 'after')).toBe('acknowledged');
        await first.running.kill('SIGKILL');
        await startCoordinator(...inside).waitForLog('coordinator ready');
      },
    );

    it('starts when the locks were deleted, and then the first coordinator exits', async () => {
      const first = await waitUntilServing();
      expect(await writeWorkload(first, 'before')).toBe('acknowledged');
      for (const name of ['lock-1', 'holder']) rmSync(join(dataDir, name));
      const second = startCoordinator(...(namespaces[0]?.inside ?? []));
      expect(await first.running.exited).toBe(1);
      expect(
        await first.running.waitForLine((line) =>
          line.includes('"message":"coordinator stopping: its state store'),
        ),
      ).toContain('"level":"error"');
      await second.waitForLog('coordinator ready');
    });
  },
);

describe('data directory of a running coordinator', () => {
  it.each([
    { name: 'deleted', loseDirectory: deleteDataDirectory },
    { name: 'moved', loseDirectory: () => renameSync(dataDir, `${dataDir}-moved`) },
    {
      name: 'replaced by an empty one',
      loseDirectory: () => {
        renameSync(dataDir, `${dataDir}-moved`);
        mkdirSync(dataDir, { mode: 0o700 });
      },
    },
  ])(
    'is reported by log and probes once it is $name; reads continue, and no write is acknowledged',
    async ({ loseDirectory }) => {
      const coordinator = await waitUntilServing();
      expect(await writeWorkload(coordinator, 'before')).toBe('acknowledged');
      loseDirectory();
      expect(await writeWorkload(coordinator, 'after-1')).toBe('unavailable');
      expect(await writeWorkload(coordinator, 'after-2')).toBe('unavailable');
      const line = await coordinator.running.waitForLog('data file lost: writes are refused');
      expect(line).toMatchObject({ level: 'error' });
      expect(await coordinator.fetchPage('/ready')).toMatch(
        /^503 .*store\.mdb is no longer the file/,
      );
      expect(await coordinator.fetchPage('/health')).toMatch(/^200 .*degraded.*admin backup/);
      expect(await listNames(coordinator)).toContain('before');
    },
  );

  it('can be restored after its deletion from a backup that the coordinator still makes', async () => {
    const coordinator = await waitUntilServing();
    expect(await writeWorkload(coordinator, 'before')).toBe('acknowledged');
    deleteDataDirectory();
    expect(await writeWorkload(coordinator, 'after')).toBe('unavailable');
    const backup = join(directory, 'backup');
    for (const args of [
      ['--server', coordinator.url, 'admin', 'backup', backup],
      ['admin', 'restore', backup, '--data-dir', dataDir],
    ]) {
      expect(await runToEnd(process.execPath, [findBundle('cloudlessctl'), ...args])).toMatchObject(
        {
          code: 0,
        },
      );
    }
    await coordinator.running.kill('SIGTERM');
    expect(await listNames(await waitUntilServing())).toEqual(['before']);
  });

  it('is reported as lost without a write, and has all acknowledged writes when it is moved back', async () => {
    const coordinator = await waitUntilServing();
    expect(await writeWorkload(coordinator, 'before')).toBe('acknowledged');
    renameSync(dataDir, `${dataDir}-moved`);
    // the checks of the lock and of the data file are independent: either may be first
    await coordinator.running.waitForLine((line) =>
      /"message":"(data file|lock) lost: writes are refused"/.test(line),
    );
    renameSync(`${dataDir}-moved`, dataDir);
    expect(await writeWorkload(coordinator, 'after')).toBe('unavailable');
    await coordinator.running.kill('SIGTERM');
    expect(await listNames(await waitUntilServing())).toEqual(['before']);
  });
});

describe('coordinator with an empty data directory', () => {
  it('reports agents of another cluster in the log, as an event and on /ready', async () => {
    const cluster = await RealCluster.start(['zone-a']);
    try {
      await cluster.coordinatorProcess.kill('SIGKILL');
      rmSync(join(cluster.directory, 'coordinator'), { recursive: true });
      await cluster.startCoordinator();
      const logged = await cluster.coordinatorProcess.waitForLog(
        'agent of another cluster refused',
      );
      expect(logged).toMatchObject({ level: 'error', nodeId: 'agent-1' });
      const response = await fetch(`${cluster.opsUrl}/ready`);
      expect(await response.text()).toContain('1 agent of another cluster');
      // the event is written after the log line; the time limit of the test ends the loop
      const listReasons = async (): Promise<readonly string[]> =>
        (await cluster.client.listEvents({})).events.map(({ reason }) => reason);
      while (!(await listReasons()).includes('AgentOfAnotherCluster'));
    } finally {
      await cluster.stop();
    }
  });
});

describeOnDiskImages('coordinator on a failing disk', () => {
  it('exits, so that a service manager can restart the coordinator', async () => {
    const image = await DiskImage.create(join(directory, 'image'), IMAGE_MIB);
    cleanups.push(() => image.unmount());
    dataDir = await image.makeDirectory('data');
    const coordinator = await waitUntilServing();
    expect(await writeWorkload(coordinator, 'before')).toBe('acknowledged');
    await image.cutPower();
    expect(await writeWorkload(coordinator, 'after')).toBe('unavailable');
    expect(await coordinator.running.exited).toBe(1);
    await coordinator.running.waitForLine((line) =>
      line.includes('"message":"coordinator stopping: its state store'),
    );
  });
});
