import { toReplicaId, toWorkloadId } from '@cloudless/base';
import type { Cluster, PlacementRequest } from './index.js';
import { aCluster, aNode, aRequest, reservationFor } from './testing/builders.js';

const NODES = 100;

/** 100 nodes in five zones. */
function aLargeCluster(): Cluster {
  return aCluster(
    Array.from({ length: NODES }, (_, index) => aNode(`n${index}`, { zone: `z${index % 5}` })),
  );
}

/** Places and reserves `count` replicas in one call. */
function placeAndReserve(cluster: Cluster, request: PlacementRequest, count: number): void {
  const { reservations } = cluster.figures();
  cluster.place(request, count).forEach((placement, index) => {
    if (!placement.placed) throw new Error('the cluster has capacity for all replicas');
    cluster.reserve(reservationFor(request, `r${reservations + index}`, placement.nodeId));
  });
}

/** A request that differs from those of other numbers. */
function aUniqueRequest(number: number): PlacementRequest {
  return aRequest({ resources: { cpuMillis: 100 + number, memoryBytes: 1_000 } });
}

describe('Work of a decision', () => {
  it('is one look at each allowed node for a request that comes once', () => {
    const cluster = aLargeCluster();
    for (let number = 0; number < 10; number += 1) cluster.place(aUniqueRequest(number), 1);
    expect(cluster.figures()).toMatchObject({
      scans: 10,
      nodesExamined: 10 * NODES,
      treesBuilt: 0,
      leavesUpdated: 0,
    });
  });

  it('leaves out nodes that the filters over nodes exclude', () => {
    const cluster = aLargeCluster();
    cluster.place(aRequest({ zones: ['z1'] }), 1);
    expect(cluster.figures()).toMatchObject({ scans: 1, nodesExamined: NODES / 5 });
  });

  it('leaves out zones with more replicas of the workload than the zone of the best node', () => {
    const cluster = aLargeCluster();
    for (const index of [0, 1, 2, 3])
      cluster.reserve(reservationFor(aRequest(), `r${index}`, `n${index}`));
    cluster.place(aUniqueRequest(1), 1);
    expect(cluster.figures()).toMatchObject({ scans: 1, nodesExamined: NODES / 5 });
  });

  it('is one score per replica of a batch, after one per node', () => {
    const cluster = aLargeCluster();
    cluster.place(aRequest(), 50);
    // The last placement changes nothing that is read again.
    expect(cluster.figures()).toMatchObject({ treesBuilt: 1, leavesUpdated: NODES + 49 });
  });

  it('is one score per changed node when the request comes again', () => {
    const cluster = aLargeCluster();
    placeAndReserve(cluster, aRequest(), 2);
    const before = cluster.figures();
    placeAndReserve(cluster, aUniqueRequest(1), 1);
    cluster.place(aRequest(), 1);
    const { treesBuilt, leavesUpdated } = cluster.figures();
    expect(treesBuilt).toBe(before.treesBuilt);
    // Two nodes of the first call and one of the second.
    expect(leavesUpdated - before.leavesUpdated).toBeLessThanOrEqual(3);
  });

  it('is one score per changed node for the third workload with equal replicas', () => {
    const cluster = aLargeCluster();
    for (const name of ['first', 'second', 'third']) {
      const request = aRequest({ workloadId: toWorkloadId(name), labels: { app: name } });
      placeAndReserve(cluster, request, 2);
    }
    const { treesBuilt, treesCopied, leavesUpdated } = cluster.figures();
    // The tree of the first workload, and the one from which the others are copied.
    expect({ treesBuilt, treesCopied }).toEqual({ treesBuilt: 2, treesCopied: 2 });
    expect(leavesUpdated).toBeLessThanOrEqual(2 * NODES + 3 * 2);
  });

  it('ends with the trees when a node comes, and starts again with the next decision', () => {
    const cluster = aLargeCluster();
    cluster.place(aRequest(), 2);
    cluster.upsertNode(aNode('new'));
    cluster.place(aRequest(), 2);
    expect(cluster.figures()).toMatchObject({ treesBuilt: 2, treesKept: 1, nodes: NODES + 1 });
  });
});

describe('Figures of a cluster', () => {
  it('count nodes and reservations, not the placements that are tried', () => {
    const cluster = aLargeCluster();
    cluster.place(aRequest(), 5);
    expect(cluster.figures()).toMatchObject({ nodes: NODES, reservations: 0 });
    placeAndReserve(cluster, aRequest(), 5);
    expect(cluster.figures()).toMatchObject({ nodes: NODES, reservations: 5 });
    for (let index = 0; index < 5; index += 1) cluster.release(toReplicaId(`r${index}`));
    expect(cluster.figures()).toMatchObject({ reservations: 0 });
  });

  it('bound the memory of prepared requests', () => {
    const cluster = aLargeCluster();
    for (let number = 0; number < 5_000; number += 1) cluster.place(aUniqueRequest(number), 2);
    const { treesBuilt, treesKept, memoryBytes } = cluster.figures();
    expect(treesBuilt).toBe(5_000);
    expect(treesKept).toBeLessThan(treesBuilt);
    expect(memoryBytes).toBeLessThan(64 * 1024 ** 2);
  });
});
