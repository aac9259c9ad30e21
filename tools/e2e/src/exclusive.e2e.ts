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

/**
 * Program that writes a heartbeat every 10 ms and ignores SIGTERM, so that only SIGKILL ends it.
 */
const HEARTBEAT_PROGRAM = `const fs = require('node:fs');
  process.on('SIGTERM', () => undefined);
  setInterval(() => fs.appendFileSync(process.env.HEARTBEATS, process.env.CLOUDLESS_REPLICA_ID + ' ' + Date.now() + '\\n'), 10);`;

/** Returns the ready replica of the workload; undefined when no replica is ready. */
const findReadyReplica = ({ status }: Workload) =>
  status!.replicas.find(({ ready, stale }) => ready && !stale);

/**
 * Time without contact after which the replica is stopped, seconds. A busy machine must not reach it
 * while both sides run.
 */
const STOP_AFTER_S = 5;
/** The same for a test in which the coordinator is away as long as its start takes. */
const LONG_STOP_AFTER_S = 60;

/** Creates an exclusive workload; returns its replica and the file of the heartbeats. */
async function startExclusive(stopAfterS = STOP_AFTER_S): Promise<{
  readonly id: string;
  readonly nodeId: string;
  readonly heartbeats: string;
}> {
  const heartbeats = join(cluster.directory, 'heartbeats');
  await cluster.client.createWorkload({
    name: 'only',
    spec: {
      command: ['node', '-e', HEARTBEAT_PROGRAM],
      env: { HEARTBEATS: heartbeats },
      disconnect: { mode: Disconnect_Mode.EXCLUSIVE, stopAfter: { seconds: BigInt(stopAfterS) } },
      terminationGracePeriod: { seconds: 1n },
      rollout: { minReadyDuration: { seconds: 0n } },
    },
  });
  const { id, nodeId } = findReadyReplica(await cluster.waitUntilSettled('only'))!;
  return { id, nodeId, heartbeats };
}

/**
 * Returns the times of the first and last heartbeat of each replica, in the order of the starts.
 */
function readHeartbeats(
  file: string,
): readonly { readonly id: string; readonly from: number; readonly to: number }[] {
  const spans = new Map<string, { id: string; from: number; to: number }>();
  for (const line of readFileSync(file, 'utf8').trimEnd().split('\n')) {
    const [id = '', at = ''] = line.split(' ');
    const span = spans.get(id) ?? { id, from: Number(at), to: Number(at) };
    spans.set(id, { ...span, to: Number(at) });
  }
  return [...spans.values()];
}

/** Waits for a ready replacement, and expects it on another node. */
async function waitForReplacement(id: string, nodeId: string): Promise<void> {
  const after = await cluster.waitForWorkload(
    'only',
    (workload) => (findReadyReplica(workload)?.id ?? id) !== id,
  );
  expect(findReadyReplica(after)?.nodeId).not.toBe(nodeId);
}

/**
 * Expects that the last heartbeat of the first replica is earlier than the first heartbeat of its
 * replacement, and that no other replica ran.
 */
async function expectNoOverlap(id: string, heartbeats: string): Promise<void> {
  const { status } = await cluster.waitForWorkload(
    'only',
    (workload) => workload.status!.replicas.length === 1,
  );
  // A process counts as ready when it has started; its first heartbeat may come later.
  while (readHeartbeats(heartbeats).length < 2)
    await new Promise((resolve) => setTimeout(resolve, 50));
  const [first, second, ...others] = readHeartbeats(heartbeats);
  expect([first?.id, second?.id, others.length]).toEqual([id, status!.replicas[0]!.id, 0]);
  expect(first?.to).toBeLessThan(second?.from ?? 0);
}

describe('exclusive replica', () => {
  it.each(['SIGKILL', 'SIGSTOP'] as const)(
    'has ended before its replacement starts when its agent receives %s',
    async (signal) => {
      const { id, nodeId, heartbeats } = await startExclusive();
      const agent = cluster.requireAgent(nodeId);
      if (signal === 'SIGKILL') await agent.kill(signal);
      else process.kill(agent.pid, signal);
      await waitForReplacement(id, nodeId);
      // the old agent returns and receives the order to forget the replaced replica
      if (signal === 'SIGKILL') await cluster.startAgent(nodeId, 'zone-a');
      else process.kill(agent.pid, 'SIGCONT');
      await expectNoOverlap(id, heartbeats);
    },
  );

  it('has ended before its replacement starts when its agent and supervisor are killed together', async () => {
    const { id, nodeId, heartbeats } = await startExclusive();
    const supervisors = listProcessesMentioning(`supervisor ${join(cluster.directory, nodeId)}`);
    expect(supervisors).toHaveLength(1);
    killAll(supervisors);
    await cluster.requireAgent(nodeId).kill('SIGKILL');
    await waitForReplacement(id, nodeId);
    // the agent returns long after stop_after, adopts no process and forgets the replaced replica
    await cluster.startAgent(nodeId, 'zone-a');
    await expectNoOverlap(id, heartbeats);
  });

  it('keeps running when the coordinator is killed and restarted', async () => {
    const { id, heartbeats } = await startExclusive(LONG_STOP_AFTER_S);
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    for (const name of ['agent-1', 'agent-2']) await cluster.waitUntilNodeReady(name);
    expect((await cluster.waitUntilSettled('only')).status!.replicas).toMatchObject([
      { id, restarts: 0 },
    ]);
    expect(readHeartbeats(heartbeats).map((span) => span.id)).toEqual([id]);
  });
});
