import { jest } from '@jest/globals';
import { create, toJsonString } from '@bufbuild/protobuf';
import {
  EndpointSetSchema,
  NodeSchema,
  NodeUsageSchema,
  WatchNodesResponse_Kind as NodeKind,
  WatchWorkloadsResponse_Kind as WorkloadKind,
  WorkloadSchema,
  type EndpointSet,
  type WatchEventsResponse,
  type WatchNodesResponse,
  type WatchWorkloadsResponse,
} from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { RandomWorld } from '../test-cluster/random-world.js';
import { ResumingWatcher, type WatchKind } from '../test-cluster/resuming-watcher.js';
import type { TestCluster } from '../test-cluster/test-cluster.js';

/** Each test runs a whole cluster, which takes long on a busy machine. */
jest.setTimeout(60_000);

const workloads = (
  cluster: TestCluster,
  request: object = {},
): WatchKind<WatchWorkloadsResponse> => ({
  name: `workloads ${JSON.stringify(request)}`,
  open: (afterRevision, signal) =>
    cluster.client.watchWorkloads({ ...request, afterRevision }, { signal }),
  applyItem: (state, { kind, workload }) => {
    if (workload === undefined) return;
    if (kind === WorkloadKind.PUT) state.set(workload.uid, toJsonString(WorkloadSchema, workload));
    else state.delete(workload.uid);
  },
});

const nodes = (cluster: TestCluster, request: object = {}): WatchKind<WatchNodesResponse> => ({
  name: `nodes ${JSON.stringify(request)}`,
  open: (afterRevision, signal) =>
    cluster.client.watchNodes({ ...request, afterRevision }, { signal }),
  applyItem: (state, { kind, node }) => {
    if (node === undefined) return;
    // These fields are computed when the item is sent.
    if (node.status !== undefined)
      Object.assign(node.status, { reliability: 0, lastSeen: undefined });
    if (kind === NodeKind.PUT) state.set(node.id, toJsonString(NodeSchema, node));
    else state.delete(node.id);
  },
});

const endpoints = (cluster: TestCluster, name: string): WatchKind<EndpointSet> => ({
  name: `endpoints of ${name}`,
  open: (afterRevision, signal) =>
    cluster.client.watchEndpoints({ name, afterRevision }, { signal }),
  applyItem: (state, set) => {
    if (!set.bookmark)
      state.set(name, toJsonString(EndpointSetSchema, Object.assign(set, { revision: 0n })));
  },
});

/** All events that ever existed, by id. */
const events = (cluster: TestCluster): WatchKind<WatchEventsResponse> => ({
  name: 'events',
  open: (afterRevision, signal) =>
    cluster.client.watchEvents(
      { afterRevision, afterId: afterRevision === 0n ? '0000000000-0000000000' : '' },
      { signal },
    ),
  applyItem: (state, { event }) => {
    if (event !== undefined) state.set(event.id, event.reason);
  },
});

const listWatchKinds = (cluster: TestCluster) =>
  [
    workloads(cluster),
    workloads(cluster, { labelSelector: 'tier=web' }),
    workloads(cluster, { name: 'two' }),
    nodes(cluster),
    nodes(cluster, { labelSelector: 'disk', includeUsage: true }),
    endpoints(cluster, 'one'),
    events(cluster),
  ] as readonly WatchKind<{ readonly revision: bigint }>[];

/** User actions that a random world does not perform and watches show. */
function moreActions(
  cluster: TestCluster,
  pick: <Item>(items: readonly Item[]) => Item,
): readonly (() => Promise<unknown>)[] {
  const { client } = cluster;
  const name = pick(['one', 'two', 'three']);
  const nodeId = pick([...cluster.agents.keys()]);
  return [
    () =>
      client.updateWorkload({ name, spec: { labels: pick([{ tier: 'web' }, { tier: 'db' }]) } }),
    () =>
      client.updateNode({
        nodeId,
        ...pick([{ setLabels: { disk: pick(['ssd', 'hdd']) } }, { removeLabels: ['disk'] }]),
      }),
    () => client.updateNode({ nodeId, zone: pick(['zone-a', 'zone-b']) }),
    () => client.removeNode({ nodeId, force: true }),
    async () =>
      cluster.state.view().node(nodeId) === undefined
        ? undefined
        : cluster.controllers.nodes.updateStatus(nodeId, [], {
            usage: create(NodeUsageSchema, { cpuMillis: pick([1, 2, 3]) }),
          }),
  ];
}

/** Lets pending items arrive without advancing the clock. */
async function waitUntilDelivered(cluster: TestCluster): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await cluster.clock.advance(0);
}

/** Returns the state that a new watch delivers. */
async function readByNewWatch(
  cluster: TestCluster,
  kind: WatchKind<{ readonly revision: bigint }>,
): Promise<ReadonlyMap<string, string>> {
  const watcher = new ResumingWatcher(kind);
  watcher.connect();
  await waitUntilDelivered(cluster);
  watcher.disconnect();
  return watcher.state;
}

describe('resumed watch', () => {
  const counts = { resumed: 0, refused: 0 };

  it.each(
    Array.from({ length: 16 }, (_, index) => [index + 1, index % 2 === 0 ? 100_000 : 60] as const),
  )(
    'ends with the same state as a new watch, seed %i, with a history of %i changes',
    async (seed, historyLimit) => {
      const world = await RandomWorld.start(seed, 'fast', { historyLimit });
      const { cluster } = world;
      const random = createSeededRandom(seed + 1_000);
      const pick = <Item>(items: readonly Item[]): Item =>
        items[Math.floor(random.next() * items.length)] as Item;
      const watchers = listWatchKinds(cluster).map((kind) => ({
        kind,
        watcher: new ResumingWatcher(kind),
      }));
      for (let step = 0; step < 60; step += 1) {
        for (const { watcher } of watchers) {
          const turn = random.next();
          if (turn < 0.2) watcher.disconnect();
          else if (turn < 0.3) watcher.stall();
          else if (turn < 0.4) watcher.continue();
          else if (turn < 0.6) watcher.connect();
          else if (turn < 0.9) watcher.connect(pick([1, 2, 3, 5]));
        }
        await world.step();
        const extraAction = pick(moreActions(cluster, pick));
        if (random.next() < 0.5) await cluster.complete(extraAction).catch(() => undefined);
      }
      for (const { watcher } of watchers) {
        watcher.continue();
        if (random.next() < 0.5) watcher.disconnect();
        watcher.connect();
      }
      await waitUntilDelivered(cluster);
      // Reconnect the watchers whose revision was compacted.
      for (const { watcher } of watchers) watcher.connect();
      await waitUntilDelivered(cluster);
      for (const { kind, watcher } of watchers) {
        const expected = await readByNewWatch(cluster, kind);
        expect({
          name: kind.name,
          faults: watcher.faults,
          state: sorted(watcher.state),
        }).toEqual({
          name: kind.name,
          faults: [],
          state: sorted(expected),
        });
        counts.resumed += watcher.resumptions;
        counts.refused += watcher.refusals.length;
        for (const message of watcher.refusals)
          expect(message).toMatch(/^what changed after revision \d+ is no longer kept; /);
      }
      await cluster.stopCoordinator();
    },
  );

  it('was resumed often and also rejected as compacted', () => {
    expect(counts.resumed).toBeGreaterThan(500);
    expect(counts.refused).toBeGreaterThan(20);
  });
});

function sorted(state: ReadonlyMap<string, string>): readonly (readonly [string, string])[] {
  return [...state].sort(([a], [b]) => (a < b ? -1 : 1));
}
