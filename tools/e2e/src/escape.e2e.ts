import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Workload } from '@cloudless/api';
import { QUICK, RealCluster } from './cluster.js';
import { killAll, processesMentioning } from './processes.js';

/**
 * RELIABILITY 40: nothing that a replica started survives, whatever session or environment it
 * chose.
 */
let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start(['zone-a']);
});
afterEach(() => cluster.stop());

/**
 * Starts a daemon as sshd and cron are: a session of its own, an empty environment, a parent that
 * ends. Then stays.
 */
const daemonOf = (notes: string): string[] => [
  '/bin/sh',
  '-c',
  `( setsid env -i sh -c 'echo $$ >> ${notes}; exec sleep 3600' & ); exec sleep 3600`,
];
/**
 * Without cgroups a daemon whose parent has ended cannot be told from others: there its parent
 * stays.
 */
const childOf = (notes: string): string[] => [
  '/bin/sh',
  '-c',
  `setsid env -i sh -c 'echo $$ >> ${notes}; exec sleep 3600' & exec sleep 3600`,
];

const mainPid = ({ status }: Workload): string =>
  readFileSync(
    join(
      cluster.directory,
      'agent-1/runtime/containers',
      status!.replicas[0]!.containerId,
      'state.json',
    ),
    'utf8',
  ).replace(/^.*"pid":(\d+).*$/s, '$1');

/** The ids in the file, once there are so many. */
async function noted(file: string, count: number): Promise<readonly number[]> {
  for (;;) {
    const ids = existsSync(file)
      ? readFileSync(file, 'utf8').trim().split('\n').filter(Boolean).map(Number)
      : [];
    if (ids.length >= count) return ids;
    await cluster.client.listNodes({});
  }
}

async function untilDead(pid: number): Promise<void> {
  while (existsSync(`/proc/${pid}`)) await cluster.client.listNodes({});
}

describe('a process in a session of its own with an empty environment', () => {
  it('ends with its replica: by a restart in place, and by deletion after the supervisor was replaced', async () => {
    const notes = join(cluster.directory, 'probe');
    await cluster.client.createWorkload({
      name: 'probe',
      spec: { ...QUICK, command: ['sleep', '3600'] },
    });
    const hasCgroups = readFileSync(
      `/proc/${mainPid(await cluster.settled('probe'))}/cgroup`,
      'utf8',
    ).includes('/cloudless-');
    await cluster.client.createWorkload({
      name: 'daemon',
      spec: { ...QUICK, command: hasCgroups ? daemonOf(notes) : childOf(notes) },
    });
    const before = await cluster.settled('daemon');
    const [first = 0] = await noted(notes, 1);
    if (hasCgroups) {
      process.kill(Number(mainPid(before)), 'SIGKILL');
      const [, second = 0] = await noted(notes, 2);
      await untilDead(first);
      expect(existsSync(`/proc/${second}`)).toBe(true);
    }
    const last = (await noted(notes, 1)).at(-1) ?? 0;
    killAll(processesMentioning(`supervisor ${join(cluster.directory, 'agent-1')}`));
    await cluster.client.deleteWorkload({ name: 'daemon' });
    await cluster.gone('daemon');
    await untilDead(last);
  });
});
