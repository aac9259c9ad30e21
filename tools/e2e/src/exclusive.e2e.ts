import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Disconnect_Mode, type Workload } from '@cloudless/api';
import { RealCluster } from './support/cluster.js';
import { killAll, listProcessesMentioning } from './support/processes.js';

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
});
afterEach(() => cluster.stop());

/** Writes a heartbeat every 10 ms and ignores SIGTERM, so that only a kill in time ends it. */
const HEART = `const fs = require('node:fs');
  process.on('SIGTERM', () => undefined);
  setInterval(() => fs.appendFileSync(process.env.HEARTS, process.env.CLOUDLESS_REPLICA_ID + ' ' + Date.now() + '\\n'), 10);`;

const requireOnlyReplica = ({ status }: Workload) =>
  status!.replicas.find(({ ready, stale }) => ready && !stale);

async function startExclusive(): Promise<{
  readonly id: string;
  readonly nodeId: string;
  readonly hearts: string;
}> {
  const hearts = join(cluster.directory, 'hearts');
  await cluster.client.createWorkload({
    name: 'only',
    spec: {
      command: ['node', '-e', HEART],
      env: { HEARTS: hearts },
      disconnect: { mode: Disconnect_Mode.EXCLUSIVE, stopAfter: { seconds: 3n } },
      terminationGracePeriod: { seconds: 1n },
      rollout: { minReadyDuration: { seconds: 0n } },
    },
  });
  const { id, nodeId } = requireOnlyReplica(await cluster.waitUntilSettled('only'))!;
  return { id, nodeId, hearts };
}

/** Returns the first and last heartbeat of each replica, in the order of their starts. */
function readHeartbeats(
  file: string,
): readonly { readonly id: string; readonly from: number; readonly to: number }[] {
  const lives = new Map<string, { id: string; from: number; to: number }>();
  for (const line of readFileSync(file, 'utf8').trimEnd().split('\n')) {
    const [id = '', at = ''] = line.split(' ');
    const life = lives.get(id) ?? { id, from: Number(at), to: Number(at) };
    lives.set(id, { ...life, to: Number(at) });
  }
  return [...lives.values()];
}

async function waitForReplacement(id: string, nodeId: string): Promise<void> {
  const after = await cluster.waitForWorkload(
    'only',
    (workload) => (requireOnlyReplica(workload)?.id ?? id) !== id,
  );
  expect(requireOnlyReplica(after)?.nodeId).not.toBe(nodeId);
}

/**
 * Expects that the last heartbeat of the first replica is earlier than the first heartbeat of its
 * replacement, and that no other replica ran.
 */
async function expectNoOverlap(id: string, hearts: string): Promise<void> {
  const { status } = await cluster.waitForWorkload(
    'only',
    (workload) => workload.status!.replicas.length === 1,
  );
  const [first, second, ...more] = readHeartbeats(hearts);
  expect([first?.id, second?.id, more.length]).toEqual([id, status!.replicas[0]!.id, 0]);
  expect(first?.to).toBeLessThan(second?.from ?? 0);
}

describe('exclusive replica', () => {
  it.each(['SIGKILL', 'SIGSTOP'] as const)(
    'ends before its replacement starts when its agent receives %s',
    async (signal) => {
      const { id, nodeId, hearts } = await startExclusive();
      const agent = cluster.requireAgent(nodeId);
      if (signal === 'SIGKILL') await agent.kill(signal);
      else process.kill(agent.pid, signal);
      await waitForReplacement(id, nodeId);
      // The old agent returns and receives the order to forget the replaced replica.
      if (signal === 'SIGKILL') await cluster.startAgent(nodeId, 'zone-a');
      else process.kill(agent.pid, 'SIGCONT');
      await expectNoOverlap(id, hearts);
    },
  );

  it('ends before its replacement starts when its agent and supervisor are killed together', async () => {
    const { id, nodeId, hearts } = await startExclusive();
    const supervisors = listProcessesMentioning(`supervisor ${join(cluster.directory, nodeId)}`);
    expect(supervisors).toHaveLength(1);
    killAll(supervisors);
    await cluster.requireAgent(nodeId).kill('SIGKILL');
    await waitForReplacement(id, nodeId);
    // The agent returns long after stop_after, adopts no process, and forgets the replaced replica.
    await cluster.startAgent(nodeId, 'zone-a');
    await expectNoOverlap(id, hearts);
  });

  it('keeps running while its coordinator restarts', async () => {
    const { id, hearts } = await startExclusive();
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    for (const name of ['agent-1', 'agent-2']) await cluster.waitUntilNodeReady(name);
    expect((await cluster.waitUntilSettled('only')).status!.replicas).toMatchObject([
      { id, restarts: 0 },
    ]);
    expect(readHeartbeats(hearts).map((life) => life.id)).toEqual([id]);
  });
});
