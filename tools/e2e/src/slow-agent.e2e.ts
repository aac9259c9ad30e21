import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Condition_Type as ConditionType, NodeStatus_Phase as NodePhase } from '@cloudless/api';
import { QUICK, RealCluster, chooseWorkloadPorts } from './support/cluster.js';
import { RunningProgram, findBundle, repository } from './support/processes.js';

const BLOCKER = pathToFileURL(join(repository, 'tools/e2e/src/support/block-main-loop.mjs')).href;
const LEASE_MS = 900;
/** Duration of the first block: longer than a lease, shorter than the bound of hung agents. */
const SLOW_MS = 2_000;
const HUNG_AFTER_MS = 3_000;
/** Duration of the second block: longer than that bound. */
const HANG_MS = 5_000;

let cluster: RealCluster;
let agent: RunningProgram;

/** Starts an agent whose main loop SIGUSR2 blocks, first for 2 s, then for 5 s. */
async function startBlockableAgent(): Promise<void> {
  const port = chooseWorkloadPorts(100);
  agent = RunningProgram.start(process.execPath, [
    ...['--import', `${BLOCKER}?${SLOW_MS},${HANG_MS}`, findBundle('agent'), 'run'],
    ...['--name', 'slow', '--coordinator', cluster.url, '--runtime', 'process'],
    ...[
      '--data-dir',
      join(cluster.directory, 'slow'),
      '--port-range',
      `${port}-${port + 99}`,
      '--stop-workloads-on-exit',
    ],
  ]);
  cluster.agents.set('slow', agent);
  await cluster.waitUntilNodeReady('slow');
}

/** Sees the node every 50 ms until `isDone`, and returns what was seen, without repetitions. */
async function watchNode(isDone: (seen: readonly string[]) => boolean): Promise<string[]> {
  const seen: string[] = [];
  for (const until = Date.now() + 15_000; !isDone(seen);) {
    if (Date.now() > until) throw new Error(`seen only: ${seen.join(', ')}`);
    const { status } = await cluster.client.getNode({ nodeId: 'slow' });
    const slow = status?.conditions.find(({ type }) => type === ConditionType.AGENT_SLOW);
    const text = `${NodePhase[status?.phase ?? 0]}${slow?.status === true ? ' slow' : ''}`;
    if (seen.at(-1) !== text) seen.push(text);
    if (slow?.status === true)
      expect(slow.reason).toMatch(/^the main loop of the agent last turned \d/);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return seen;
}

const eventReasons = async (): Promise<readonly string[]> =>
  (await cluster.client.listEvents({ nodeId: 'slow', pageSize: 1_000 })).events.map(
    ({ reason }) => reason,
  );

describe('an agent whose main loop is blocked', () => {
  beforeEach(async () => {
    cluster = await RealCluster.start([]);
    await cluster.coordinatorProcess.kill('SIGTERM');
    cluster.coordinatorFlags = [
      ...['--lease', `${LEASE_MS}ms`, '--ping-interval', '300ms'],
      ...['--hung-after', `${HUNG_AFTER_MS}ms`],
    ];
    await cluster.startCoordinator();
    await startBlockableAgent();
  });
  afterEach(() => cluster.stop());

  it('keeps its node and replicas for longer than a lease, reported as slow, and is lost when it hangs', async () => {
    await cluster.client.createWorkload({
      name: 'web',
      spec: { ...QUICK, command: ['sleep', '600'], replicas: 1 },
    });
    const before = await cluster.waitUntilSettled('web');
    process.kill(agent.pid, 'SIGUSR2');
    expect(
      await watchNode((seen) => seen.includes('READY slow') && seen.at(-1) === 'READY'),
    ).toEqual(['READY', 'READY slow', 'READY']);
    const after = await cluster.waitUntilSettled('web');
    expect(after.status?.replicas.map(({ id, restarts }) => [id, restarts])).toEqual(
      before.status?.replicas.map(({ id, restarts }) => [id, restarts]),
    );
    expect(await eventReasons()).toContain('AgentSlow');
    process.kill(agent.pid, 'SIGUSR2');
    expect(await watchNode((seen) => seen.at(-1) === 'LOST')).toEqual([
      'READY',
      'READY slow',
      'LOST',
    ]);
    expect(await eventReasons()).toContain('NodeLost');
  });
});
