import { getEventListeners } from 'node:events';
import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  ContainerStatsSchema,
  ContainerUseSchema,
  GetContainerStatsRequestSchema,
  ListContainerStatsRequestSchema,
  ListContainerStatsResponseSchema,
  ReplicaStatus_Phase as Phase,
  TunnelFrameSchema,
  type ListContainerStatsResponse,
  type TunnelFrame,
} from '@cloudless/api';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ClusterState } from '@cloudless/cluster-state';
import { StatisticsHandlers } from './statistics-handlers.js';
import type { TunnelOpener, TunnelPurpose } from './tunnel-hub.js';

const WORKLOADS: Readonly<Record<string, { readonly namespace: string; readonly name: string }>> = {
  web: { namespace: 'default', name: 'web' },
  db: { namespace: 'prod', name: 'db' },
};

interface Replica {
  readonly id: string;
  readonly nodeId: string;
  readonly phase?: Phase;
  readonly containerId?: string;
}

/** Replicas named `<workload>-<number>`, each with a container `c-<id>`. */
function createState(replicas: readonly Replica[]): ClusterState {
  const records = replicas.map(
    ({ id, nodeId, phase = Phase.RUNNING, containerId = `c-${id}` }) => ({
      value: create(ReplicaRecordSchema, {
        id,
        uid: id.split('-')[0] ?? '',
        nodeId,
        phase,
        containerId,
      }),
      revision: 1n,
    }),
  );
  const findWorkload = (uid: string) => ({
    value: create(WorkloadRecordSchema, { uid, ...WORKLOADS[uid] }),
    revision: 1n,
  });
  const view = {
    replicas: () => records,
    replica: (id: string) => records.find(({ value }) => value.id === id),
    replicasOf: (uid: string) => records.filter(({ value }) => value.uid === uid),
    workload: (uid: string) => (uid in WORKLOADS ? findWorkload(uid) : undefined),
    workloadByName: (namespace: string, name: string) =>
      WORKLOADS[name]?.namespace === namespace ? findWorkload(name) : undefined,
    node: (id: string) =>
      records.some(({ value }) => value.nodeId === id) ? { value: {} } : undefined,
  };
  return { view: () => view } as unknown as ClusterState;
}

/** The frames that the agent of a node sends in a tunnel. */
type Answer = (target: TunnelPurpose, signal: AbortSignal) => AsyncGenerator<TunnelFrame>;

/** Handlers over agents that answer with the containers of their node, or as a test says. */
class World {
  readonly clock = new ManualClock();
  /** The tunnels that were opened, in order. */
  readonly queries: { readonly nodeId: string; readonly target: TunnelPurpose }[] = [];
  readonly handlers: StatisticsHandlers;
  readonly stopping = new AbortController();
  /** Number of open tunnels, and the largest number so far. */
  openTunnels = 0;
  maxOpenTunnels = 0;

  constructor(
    replicas: readonly Replica[] /** Answers of single nodes. */,
    answers: Readonly<Record<string, Answer>> = {},
  ) {
    const open = async function* (
      this: World,
      nodeId: string,
      target: TunnelPurpose,
      signal: AbortSignal,
    ) {
      this.queries.push({ nodeId, target });
      this.maxOpenTunnels = Math.max(this.maxOpenTunnels, (this.openTunnels += 1));
      try {
        yield* (answers[nodeId] ?? (() => this.answer(nodeId, replicas)))(target, signal);
      } finally {
        this.openTunnels -= 1;
      }
    };
    const tunnels = { open: open.bind(this) } as unknown as TunnelOpener;
    this.handlers = new StatisticsHandlers(
      { state: createState(replicas), clock: this.clock },
      tunnels,
    );
  }

  list(
    init: {
      namespace?: string;
      name?: string;
      nodeId?: string;
      pageSize?: number;
      pageToken?: string;
    } = {},
  ) {
    return this.handlers.listContainerStats(
      create(ListContainerStatsRequestSchema, init),
      this.context,
    );
  }

  get(init: { containerId?: string; replicaId?: string }) {
    return this.handlers.getContainerStats(
      create(GetContainerStatsRequestSchema, init),
      this.context,
    );
  }

  private get context(): HandlerContext {
    return { signal: this.stopping.signal } as HandlerContext;
  }

  private async *answer(nodeId: string, replicas: readonly Replica[]): AsyncGenerator<TunnelFrame> {
    await Promise.resolve();
    const containers = replicas
      .filter((replica) => replica.nodeId === nodeId)
      .map(({ id }) => create(ContainerUseSchema, { replicaId: id, nodeId }))
      .reverse();
    const value = create(ListContainerStatsResponseSchema, { containers });
    yield create(TunnelFrameSchema, { frame: { case: 'statsList', value } });
  }
}

const listShown = ({ containers }: ListContainerStatsResponse) =>
  containers.map(({ nodeId, replicaId }) => `${nodeId}/${replicaId}`);
const replicas: readonly Replica[] = [
  { id: 'web-2', nodeId: 'b' },
  { id: 'web-1', nodeId: 'a' },
  { id: 'db-1', nodeId: 'a' },
  { id: 'db-2', nodeId: 'c', phase: Phase.FAILED },
  { id: 'db-3', nodeId: 'd', containerId: '' },
  { id: 'db-4', nodeId: '', phase: Phase.PENDING },
];
const refuse = async function* (): AsyncGenerator<TunnelFrame> {
  throw new CloudlessError('unavailable', 'node "a" is not connected');
};
const staySilent: Answer = async function* (_target, signal) {
  await new Promise((_, reject) =>
    signal.addEventListener('abort', () => reject(new CloudlessError('unavailable', 'left'))),
  );
  yield create(TunnelFrameSchema);
};

describe('StatisticsHandlers.listContainerStats', () => {
  it.each([
    { request: {}, queried: ['a', 'b'], listed: ['a/db-1', 'a/web-1', 'b/web-2'] },
    { request: { namespace: 'default' }, queried: ['a', 'b'], listed: ['a/web-1', 'b/web-2'] },
    { request: { name: 'web' }, queried: ['a', 'b'], listed: ['a/web-1', 'b/web-2'] },
    { request: { namespace: 'prod', name: 'db' }, queried: ['a'], listed: ['a/db-1'] },
    { request: { nodeId: 'b' }, queried: ['b'], listed: ['b/web-2'] },
    { request: { nodeId: 'b', namespace: 'prod' }, queried: [], listed: [] },
    { request: { nodeId: 'c' }, queried: [], listed: [] },
  ])(
    'queries nodes $queried and lists $listed for the request $request',
    async ({ request, queried, listed }) => {
      const world = new World(replicas);
      const response = await world.list(request);
      expect(listShown(response)).toEqual(listed);
      expect(response.silentNodes).toEqual([]);
      expect(world.queries.map(({ nodeId }) => nodeId)).toEqual(queried);
      for (const { target } of world.queries)
        expect(target).toMatchObject({ value: { nodeId: '', pageToken: '', pageSize: 0 } });
    },
  );

  it('lists an unreachable node as silent with the reason, and lists the containers of other nodes', async () => {
    const world = new World(replicas, { a: refuse });
    const response = await world.list();
    expect(listShown(response)).toEqual(['b/web-2']);
    expect(response.silentNodes).toMatchObject([
      { nodeId: 'a', reason: 'node "a" is not connected' },
    ]);
  });

  it('drops the statistics of a node about containers of another node', async () => {
    const answerForOthers: Answer = async function* () {
      const containers = ['web-1', 'web-2'].map((replicaId) =>
        create(ContainerUseSchema, { replicaId, nodeId: 'a' }),
      );
      const value = create(ListContainerStatsResponseSchema, { containers });
      yield create(TunnelFrameSchema, { frame: { case: 'statsList', value } });
    };
    const response = await new World(replicas, { b: answerForOthers }).list();
    expect(listShown(response)).toEqual(['a/db-1', 'a/web-1', 'b/web-2']);
  });

  it('lists a node as silent when it has not answered within 3 s', async () => {
    const world = new World(replicas, { a: staySilent });
    let done: ListContainerStatsResponse | undefined;
    void world.list().then((response) => (done = response));
    await world.clock.advance(2_999);
    expect(done).toBeUndefined();
    await world.clock.advance(1);
    expect(done?.silentNodes).toMatchObject([{ nodeId: 'a', reason: 'no answer within 3 s' }]);
    expect(world.openTunnels).toBe(0);
    expect(world.clock.pendingTimers).toBe(0);
    expect(getEventListeners(world.stopping.signal, 'abort')).toEqual([]);
  });

  it('closes its tunnels when the client disconnects', async () => {
    const world = new World(replicas, { a: staySilent, b: staySilent });
    const response = world.list();
    await world.clock.advance(1);
    world.stopping.abort();
    await expect(response).rejects.toMatchObject({ kind: 'unavailable' });
    expect([world.openTunnels, world.clock.pendingTimers]).toEqual([0, 0]);
  });

  it('queries at most 16 nodes at a time', async () => {
    const many = Array.from({ length: 50 }, (_, index) => ({
      id: `web-${index}`,
      nodeId: `n${index}`,
    }));
    const world = new World(many);
    expect((await world.list()).containers).toHaveLength(50);
    expect(world.maxOpenTunnels).toBe(16);
  });

  it('returns each replica on exactly one page when the replicas of a node span two pages', async () => {
    const many = Array.from({ length: 25 }, (_, index) => ({
      id: `web-${index}`,
      nodeId: `n${Math.floor(index / 10)}`,
    }));
    const world = new World(many);
    const pages: string[][] = [];
    let pageToken = '';
    do {
      const response = await world.list({ pageSize: 7, pageToken });
      pages.push(listShown(response));
      pageToken = response.nextPageToken;
    } while (pageToken !== '');
    expect(pages.map(({ length }) => length)).toEqual([7, 7, 7, 4]);
    expect(new Set(pages.flat()).size).toBe(25);
  });

  it.each([
    { request: { name: 'none' }, message: 'workload "default/none" not found' },
    { request: { nodeId: 'none' }, message: 'node "none" not found' },
  ])('fails with kind `notFound` for the request $request', async ({ request, message }) => {
    await expect(new World(replicas).list(request)).rejects.toMatchObject({
      kind: 'notFound',
      message,
    });
  });
});

describe('StatisticsHandlers.getContainerStats', () => {
  const answerStats: Answer = async function* () {
    yield create(TunnelFrameSchema, {
      frame: { case: 'stats', value: create(ContainerStatsSchema, { replicaId: 'web-1' }) },
    });
  };

  it.each([{ replicaId: 'web-1' }, { containerId: 'c-web-1' }])(
    'queries the node of the container for the request %j',
    async (request) => {
      const world = new World(replicas, { a: answerStats });
      expect(await world.get(request)).toMatchObject({ replicaId: 'web-1' });
      expect(world.queries).toMatchObject([
        {
          nodeId: 'a',
          target: { case: 'stats', value: { containerId: 'c-web-1', replicaId: '' } },
        },
      ]);
    },
  );

  it.each([
    {
      request: {},
      kind: 'invalid',
      message: 'container_id: either container_id or replica_id is required',
    },
    {
      request: { containerId: 'c', replicaId: 'web-1' },
      kind: 'invalid',
      message: 'replica_id: cannot be combined with container_id',
    },
    { request: { replicaId: 'web-9' }, kind: 'notFound', message: 'replica "web-9" not found' },
    {
      request: { replicaId: 'db-3' },
      kind: 'precondition',
      message: 'replica "db-3" has no running container',
    },
  ])('fails with kind $kind for the request $request', async ({ request, kind, message }) => {
    await expect(new World(replicas).get(request)).rejects.toMatchObject({ kind, message });
  });
});
