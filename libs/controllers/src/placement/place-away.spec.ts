import fc from 'fast-check';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ControlRecordSchema, VersionRecordSchema } from '@cloudless/api/store';
import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import { createCluster, type Placement, type PlacementRequest } from '@cloudless/scheduler';
import { findLeftNodes, placeAway } from './place-away.js';

const request: PlacementRequest = {
  workloadId: toWorkloadId('web'),
  namespace: 'default',
  resources: { cpuMillis: 100, memoryBytes: 1 },
};
const nodeIdOf = (index: number) => toNodeId(`n${index + 1}`);

/** A cluster whose nodes have resources for these numbers of replicas. */
function aClusterWithRoomFor(counts: readonly number[]) {
  const cluster = createCluster();
  for (const [index, count] of counts.entries())
    cluster.upsertNode({
      id: nodeIdOf(index),
      capacity: { cpuMillis: 100 * count, memoryBytes: 1_000 },
    });
  return cluster;
}
const listNodes = (placements: readonly Placement[]) =>
  placements.map((placement) => (placement.placed ? placement.nodeId : 'none'));

describe('placeAway', () => {
  it.each([
    { name: 'another node while one fits', room: [9, 1], count: 1, nodes: ['n2'] },
    { name: 'the left node when no other node fits', room: [9, 0], count: 1, nodes: ['n1'] },
    {
      name: 'the left node only for the replicas that no other node fits',
      room: [1, 2],
      count: 4,
      nodes: ['n2', 'n2', 'n1', 'none'],
    },
  ])('chooses $name', ({ room, count, nodes }) => {
    const placements = placeAway(aClusterWithRoomFor(room), request, count, [nodeIdOf(0)]);
    expect(listNodes(placements)).toEqual(nodes);
  });

  it('ignores nodes that have left the cluster', () => {
    const cluster = aClusterWithRoomFor([1]);
    expect(listNodes(placeAway(cluster, request, 1, [toNodeId('gone')]))).toEqual(['n1']);
  });

  it('places no fewer replicas, fills other nodes first, and leaves the cluster unchanged', () => {
    const arbRoom = fc.array(fc.nat(4), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(arbRoom, fc.nat(12), fc.uniqueArray(fc.nat(4)), (room, count, left) => {
        const cluster = aClusterWithRoomFor(room);
        // A replica that runs on a node that is left.
        cluster.reserve({ ...request, replicaId: toReplicaId('web-1'), nodeId: nodeIdOf(0) });
        const before = cluster.explain(request);
        const usual = cluster.place(request, count);
        const placements = placeAway(cluster, request, count, left.map(nodeIdOf));
        const used = listNodes(placements);
        expect(cluster.explain(request)).toEqual(before);
        expect(used).toHaveLength(count);
        const free = room.map((places, index) => Math.max(0, places - (index === 0 ? 1 : 0)));
        const othersFit = free.reduce(
          (sum, places, index) => sum + (left.includes(index) ? 0 : places),
          0,
        );
        const onLeft = used.filter((nodeId) => left.map(nodeIdOf).some((id) => id === nodeId));
        const placed = used.filter((nodeId) => nodeId !== 'none').length;
        expect(placed).toBe(usual.filter((placement) => placement.placed).length);
        expect(onLeft).toHaveLength(Math.max(0, placed - othersFit));
      }),
      { numRuns: 100 },
    );
  });
});

describe('findLeftNodes', () => {
  const control = create(ControlRecordSchema, {
    uid: 'web',
    activeVersion: 2,
    eviction: { replicaIds: ['web-1'], nodeIds: ['n1', 'n2'], until: timestampFromMs(10_000) },
  });
  // Version 3 returns to the template of version 2.
  const view = {
    version: (_uid: string, version: number) =>
      create(VersionRecordSchema, { version, sameAs: version === 3 ? 2 : 0 }),
  };

  it.each([
    { name: 'for new replicas of the active version', version: 2, nowMs: 9_999, left: 2 },
    { name: 'for a version equal to the active version', version: 3, nowMs: 9_999, left: 2 },
    { name: 'for no new replicas of an update', version: 1, nowMs: 9_999, left: 0 },
    { name: 'until the request ends', version: 2, nowMs: 10_000, left: 0 },
  ])('returns the nodes $name', ({ version, nowMs, left }) => {
    expect(findLeftNodes(view, control, version, nowMs)).toEqual(['n1', 'n2'].slice(0, left));
  });

  it('returns no nodes without a request', () => {
    const quiet = create(ControlRecordSchema, { uid: 'web', activeVersion: 2 });
    expect(findLeftNodes(view, quiet, 2, 0)).toEqual([]);
    expect(findLeftNodes(view, undefined, 2, 0)).toEqual([]);
  });
});
