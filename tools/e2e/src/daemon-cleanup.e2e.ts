import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Workload } from '@cloudless/api';
import { QUICK, RealCluster } from './support/cluster.js';
import { killAll, listProcessesMentioning } from './support/processes.js';

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start(['zone-a']);
});
afterEach(() => cluster.stop());

/**
 * Returns a command that starts a daemon as sshd or cron do (own session, empty environment, its
 * parent ends) and then keeps running.
 * @param notes - File to which the daemon appends its process id.
 */
const createDaemonProgram = (notes: string): string[] => [
  '/bin/sh',
  '-c',
  `( setsid env -i sh -c 'echo $$ >> ${notes}; exec sleep 3600' & ); exec sleep 3600`,
];
/**
 * Same as {@link createDaemonProgram}, but the parent of the daemon stays: without cgroups, a
 * daemon whose parent has ended cannot be attributed to its replica.
 */
const createChildProgram = (notes: string): string[] => [
  '/bin/sh',
  '-c',
  `setsid env -i sh -c 'echo $$ >> ${notes}; exec sleep 3600' & exec sleep 3600`,
];

/** Returns the process id of the first replica, from the state file of its supervisor. */
const getMainPid = ({ status }: Workload): string =>
  readFileSync(
    join(
      cluster.directory,
      'agent-1/runtime/containers',
      status!.replicas[0]!.containerId,
      'state.json',
    ),
    'utf8',
  ).replace(/^.*"pid":(\d+).*$/s, '$1');

/** Waits until the file has `count` process ids, and returns all of them. */
async function waitForPids(file: string, count: number): Promise<readonly number[]> {
  for (;;) {
    const ids = existsSync(file)
      ? readFileSync(file, 'utf8').trim().split('\n').filter(Boolean).map(Number)
      : [];
    if (ids.length >= count) return ids;
    await cluster.client.listNodes({});
  }
}

async function waitUntilDead(pid: number): Promise<void> {
  while (existsSync(`/proc/${pid}`)) await cluster.client.listNodes({});
}

describe('daemon that a replica started', () => {
  it('is ended when its replica restarts, and when its workload is deleted under a new supervisor', async () => {
    const notes = join(cluster.directory, 'probe');
    await cluster.client.createWorkload({
      name: 'probe',
      spec: { ...QUICK, command: ['sleep', '3600'] },
    });
    const hasCgroups = readFileSync(
      `/proc/${getMainPid(await cluster.waitUntilSettled('probe'))}/cgroup`,
      'utf8',
    ).includes('/cloudless-');
    await cluster.client.createWorkload({
      name: 'daemon',
      spec: {
        ...QUICK,
        command: hasCgroups ? createDaemonProgram(notes) : createChildProgram(notes),
      },
    });
    const before = await cluster.waitUntilSettled('daemon');
    const [first = 0] = await waitForPids(notes, 1);
    if (hasCgroups) {
      process.kill(Number(getMainPid(before)), 'SIGKILL');
      const [, second = 0] = await waitForPids(notes, 2);
      await waitUntilDead(first);
      expect(existsSync(`/proc/${second}`)).toBe(true);
    }
    const last = (await waitForPids(notes, 1)).at(-1) ?? 0;
    killAll(listProcessesMentioning(`supervisor ${join(cluster.directory, 'agent-1')}`));
    await cluster.client.deleteWorkload({ name: 'daemon' });
    await cluster.waitUntilDeleted('daemon');
    await waitUntilDead(last);
  });
});
