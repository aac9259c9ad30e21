import { DrainStatus_Phase as DrainPhase, type Node } from '@cloudless/api';
import { QUICK, RealCluster } from './support/cluster.js';

let cluster: RealCluster;
beforeEach(async () => {
  cluster = await RealCluster.start();
});
afterEach(() => cluster.stop());

const sleeper = { ...QUICK, command: ['sleep', '100000'] };
const aWorkloadWithMinimum = (minAvailable: number) => ({
  rollout: { ...QUICK.rollout, minAvailable },
});
/** Spec of a workload that fits on agent-2 only and must stay available. */
const pinnedWorkload = { ...sleeper, ...aWorkloadWithMinimum(1), placement: { zones: ['zone-b'] } };

/** Watches a node until a condition holds, and returns the node. */
async function waitForNode(nodeId: string, fits: (node: Node) => boolean): Promise<Node> {
  const watch = new AbortController();
  try {
    for await (const { node } of cluster.client.watchNodes({ nodeId }, { signal: watch.signal })) {
      if (node?.status !== undefined && fits(node)) return node;
    }
  } finally {
    watch.abort();
  }
  throw new Error(`the watch of ${nodeId} ended`);
}

/**
 * Runs an action and returns the minimum of ready replicas that a watch of the workload showed
 * during the action.
 */
async function measureLowestReady(name: string, action: () => Promise<void>): Promise<number> {
  const watch = new AbortController();
  let lowest = Number.POSITIVE_INFINITY;
  const following = (async () => {
    for await (const { workload } of cluster.client.watchWorkloads(
      { name },
      { signal: watch.signal },
    )) {
      if (workload?.status !== undefined) lowest = Math.min(lowest, workload.status.readyReplicas);
    }
  })().catch(() => undefined);
  await action();
  watch.abort();
  await following;
  return lowest;
}

describe('drain of a node', () => {
  it('prints its progress until the node is empty, and keeps min_available', async () => {
    await cluster.client.createWorkload({
      name: 'web',
      spec: { ...sleeper, ...aWorkloadWithMinimum(6), replicas: 6 },
    });
    await cluster.waitUntilSettled('web');
    const lowest = await measureLowestReady('web', async () => {
      const { code, stdout } = await cluster.runCtl('node', 'drain', 'agent-1', '--wait');
      expect(code).toBe(0);
      const lines = stdout.trimEnd().split('\n');
      expect(lines[0]).toBe('node agent-1: draining');
      expect(lines[1]).toMatch(
        /^node agent-1: [12] of 2 replicas left: default\/web: [12] replicas?: ./,
      );
      expect(lines.at(-1)).toBe('node agent-1: drained');
    });
    expect(lowest).toBe(6);
    const node = await cluster.client.getNode({ nodeId: 'agent-1' });
    expect(node).toMatchObject({ draining: true, cordoned: true, status: { replicaCount: 0 } });
    expect(node.status?.drain).toMatchObject({ phase: DrainPhase.DRAINED, total: 2, remaining: 0 });
    expect((await cluster.runCtl('get', 'nodes')).stdout).toMatch(/agent-1 +Ready,Drained /);
  });

  it('fails at its deadline with the remaining replicas, and succeeds with --force', async () => {
    await cluster.client.createWorkload({ name: 'bound', spec: pinnedWorkload });
    await cluster.waitUntilSettled('bound');
    const failed = await cluster.runCtl(
      'node',
      'drain',
      'agent-2',
      '--deadline',
      '4s',
      '--wait',
      '--accept-warnings',
    );
    expect(failed).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('1 of 1 replica left') as unknown,
    });
    expect(failed.stderr).toMatch(
      /drain of node agent-2 failed.*\n  default\/bound: 1 replica: 1 replacement has no node: /,
    );
    const node = await cluster.client.getNode({ nodeId: 'agent-2' });
    expect(node).toMatchObject({
      draining: false,
      cordoned: true,
      status: { drain: { phase: DrainPhase.FAILED } },
    });
    expect((await cluster.client.getWorkload({ name: 'bound' })).status?.readyReplicas).toBe(1);
    expect(await cluster.runCtl('node', 'drain', 'agent-2', '--force', '--wait')).toMatchObject({
      code: 0,
    });
    const unplaced = await cluster.waitForWorkload(
      'bound',
      ({ status }) => status!.readyReplicas === 0,
    );
    expect(unplaced.status?.reason).toContain('1 of 1 replicas without a node');
  });

  it('keeps min_available until its deadline also with --force, and continues after --timeout', async () => {
    await cluster.client.createWorkload({ name: 'bound', spec: pinnedWorkload });
    await cluster.waitUntilSettled('bound');
    const drain = ['node', 'drain', 'agent-2', '--force', '--wait'];
    const timedOut = await cluster.runCtl(...drain, '--deadline', '10m', '--timeout', '1s');
    expect(timedOut).toMatchObject({
      code: 6,
      stderr: expect.stringContaining('was not drained within 1s') as unknown,
    });
    expect((await cluster.client.getWorkload({ name: 'bound' })).status?.readyReplicas).toBe(1);
    expect(await cluster.runCtl(...drain, '--deadline', '1s')).toMatchObject({ code: 0 });
    const node = await cluster.client.getNode({ nodeId: 'agent-2' });
    expect(node).toMatchObject({
      draining: true,
      status: { replicaCount: 0, drain: { phase: DrainPhase.DRAINED, total: 1 } },
    });
  });

  it('keeps min_available when two nodes are drained together', async () => {
    await cluster.startAgent('agent-4', 'zone-a');
    await cluster.client.createWorkload({
      name: 'web',
      spec: { ...sleeper, ...aWorkloadWithMinimum(8), replicas: 8 },
    });
    await cluster.waitUntilSettled('web');
    const lowest = await measureLowestReady('web', async () => {
      expect(await cluster.runCtl('node', 'drain', 'agent-1', 'agent-2', '--wait')).toMatchObject({
        code: 0,
      });
    });
    expect(lowest).toBe(8);
    const { status } = await cluster.waitUntilSettled('web');
    expect(new Set(status!.replicas.map(({ nodeId }) => nodeId))).toEqual(
      new Set(['agent-3', 'agent-4']),
    );
  });

  it('continues with the same deadline when the coordinator is killed, and cloudlessctl keeps waiting', async () => {
    await cluster.client.createWorkload({ name: 'bound', spec: pinnedWorkload });
    await cluster.waitUntilSettled('bound');
    const waiting = cluster.runCtl(
      'node',
      'drain',
      'agent-2',
      '--deadline',
      '10m',
      '--wait',
      '--accept-warnings',
    );
    const before = await waitForNode(
      'agent-2',
      ({ status }) => status?.drain?.waiting[0]?.includes('no node') === true,
    );
    await cluster.coordinatorProcess.kill('SIGKILL');
    await cluster.startCoordinator();
    await cluster.waitUntilNodeReady('agent-2');
    const after = await cluster.client.getNode({ nodeId: 'agent-2' });
    expect(after.status?.drain).toMatchObject({
      phase: DrainPhase.DRAINING,
      total: 1,
      remaining: 1,
    });
    expect(after.status?.drain?.deadline).toEqual(before.status?.drain?.deadline);
    const lowest = await measureLowestReady('bound', async () => {
      await cluster.startAgent('agent-x', 'zone-b');
      expect(await waiting).toMatchObject({
        code: 0,
        stdout: expect.stringContaining('node agent-2: drained\n') as unknown,
      });
    });
    expect(lowest).toBe(1);
    expect(
      (await cluster.waitUntilSettled('bound')).status!.replicas.map(({ nodeId }) => nodeId),
    ).toEqual(['agent-x']);
  });
});
