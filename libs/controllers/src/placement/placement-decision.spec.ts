import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as Restart,
  Rollout_Strategy as Strategy,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { toNodeId, toWorkloadId } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { createCluster, type PlacementRequest } from '@cloudless/scheduler';
import {
  decideAny,
  decideBound,
  decideSet,
  findNewSet,
  type PlacementDecision,
} from './placement-decision.js';

/** A cluster whose nodes have resources for these numbers of replicas. */
function aClusterWithRoomFor(...counts: number[]) {
  const cluster = createCluster();
  for (const [index, count] of counts.entries()) {
    cluster.upsertNode({
      id: toNodeId(`n${index + 1}`),
      capacity: { cpuMillis: 100 * count, memoryBytes: 1_000 },
    });
  }
  return cluster;
}

const request: PlacementRequest = {
  workloadId: toWorkloadId('web'),
  namespace: 'default',
  resources: { cpuMillis: 100, memoryBytes: 1 },
};

type Fields = MessageInitShape<typeof ReplicaRecordSchema>;

function waitingReplicas(
  count: number,
  fields: (index: number) => Fields = () => ({}),
): Stored<ReplicaRecord>[] {
  return Array.from({ length: count }, (_, index) => ({
    value: create(ReplicaRecordSchema, {
      id: `web-${index}`,
      uid: 'web',
      desiredRunning: true,
      phase: Phase.PENDING,
      ...fields(index),
    }),
    revision: 1n,
  }));
}

const outcomesOf = ({ decided }: PlacementDecision) =>
  decided.map(({ outcome }) => ('reason' in outcome ? outcome.reason : outcome.nodeId));

describe('decideAny', () => {
  it('places as many replicas as fit, and gives the reason to all others, also beyond the limit', () => {
    const decision = decideAny(aClusterWithRoomFor(1, 1), request, waitingReplicas(6), 4);
    const reason = 'no node fits: needs 100m CPU, more than is free: 2 of 2 nodes';
    expect(outcomesOf(decision)).toEqual(['n1', 'n2', reason, reason, reason, reason]);
    expect(decision).toMatchObject({
      isAtomic: false,
      refusal: 'no node fits 4 replicas: needs 100m CPU, more than is free: 2 of 2 nodes',
    });
  });

  it('decides for as many replicas as the limit allows while resources are free', () => {
    const decision = decideAny(aClusterWithRoomFor(9), request, waitingReplicas(6), 4);
    expect(outcomesOf(decision)).toEqual(['n1', 'n1', 'n1', 'n1']);
    expect(decision.refusal).toBeUndefined();
  });
});

describe('decideBound', () => {
  it('places each replica on its node only, and names the node in the reason', () => {
    const replicas = waitingReplicas(3, (index) => ({ onlyNodeId: ['n2', 'n1', 'n9'][index]! }));
    const decision = decideBound(aClusterWithRoomFor(0, 5), request, replicas);
    expect(outcomesOf(decision)).toEqual([
      'n2',
      'node n1 does not fit: needs 100m CPU, the node has 0',
      'node n9 is not in the cluster',
    ]);
    expect(decision.refusal).toBe(
      '2 replicas cannot be placed each on its node: node n1 does not fit: needs 100m CPU, the node has 0; node n9 is not in the cluster',
    );
  });

  it('names at most five nodes in the event', () => {
    const replicas = waitingReplicas(7, (index) => ({ onlyNodeId: `n${index + 1}` }));
    const { refusal } = decideBound(aClusterWithRoomFor(0, 0, 0, 0, 0, 0, 0), request, replicas);
    expect(refusal).toMatch(
      /^7 replicas cannot .*: node n1 .*; node n5 does not fit: needs 100m CPU, the node has 0; and 2 more$/,
    );
  });
});

describe('decideSet', () => {
  it('places a set of any size as a whole', () => {
    const decision = decideSet(aClusterWithRoomFor(60, 60), request, waitingReplicas(100), {
      size: 100,
      missing: 100,
      complete: true,
    });
    expect(outcomesOf(decision).filter((id) => id === 'n1' || id === 'n2')).toHaveLength(100);
    expect(decision).toMatchObject({ isAtomic: true });
    expect(decision.refusal).toBeUndefined();
  });

  it('places no replica when a part of the set finds no node, and gives the size of that part', () => {
    const reason =
      'the new set of 5 replicas is placed as a whole, and 2 of them find no node: needs 100m CPU, more than is free: 3 of 3 nodes';
    const decision = decideSet(aClusterWithRoomFor(1, 1, 1), request, waitingReplicas(5), {
      size: 5,
      missing: 5,
      complete: true,
    });
    expect(outcomesOf(decision)).toEqual(Array(5).fill(reason));
    expect(decision.refusal).toBe(reason);
  });

  it('counts replicas of the set that are still to be created', () => {
    const decision = decideSet(aClusterWithRoomFor(3), request, waitingReplicas(2), {
      size: 6,
      missing: 4,
      complete: true,
    });
    expect(outcomesOf(decision)[0]).toBe(
      'the new set of 6 replicas is placed as a whole, and 1 of them finds no node: needs 100m CPU, more than is free: 1 of 1 nodes',
    );
  });

  it('decides nothing until the first replicas of the set are all created', () => {
    expect(
      decideSet(aClusterWithRoomFor(9), request, waitingReplicas(2), {
        size: 5,
        missing: 5,
        complete: false,
      }).decided,
    ).toEqual([]);
  });
});

describe('findNewSet', () => {
  const { BLUE_GREEN, ROLLING_UPDATE } = Strategy;
  interface Case {
    readonly strategy?: Strategy;
    readonly active?: number;
    readonly sameAs?: number;
    readonly replicas?: readonly Fields[];
  }

  function findSet({ strategy = BLUE_GREEN, active = 1, sameAs = 0, replicas = [] }: Case) {
    const workload = create(WorkloadRecordSchema, {
      uid: 'web',
      version: 2,
      spec: { replicas: 3, restart: { policy: Restart.ON_FAILURE } },
    });
    const control = create(ControlRecordSchema, {
      uid: 'web',
      activeVersion: active,
      rollout: { strategy },
    });
    const view = {
      control: () => ({ value: control, revision: 1n }),
      version: (_uid: string, version: number) =>
        create(VersionRecordSchema, { version, sameAs: version === 2 ? sameAs : 0 }),
      replicasOf: () =>
        replicas.flatMap((fields) => waitingReplicas(1, () => ({ version: 2, ...fields }))),
    } as Partial<ClusterView> as ClusterView;
    return findNewSet(view, workload, 2);
  }
  const placed: Fields = { nodeId: 'n1', phase: Phase.RUNNING };

  it.each<Case & { readonly name: string; readonly expected: ReturnType<typeof findSet> }>([
    {
      name: 'returns undefined for a rolling update',
      strategy: ROLLING_UPDATE,
      expected: undefined,
    },
    { name: 'returns undefined for a first deployment', active: 0, expected: undefined },
    { name: 'returns undefined for the serving version', active: 2, expected: undefined },
    {
      name: 'returns undefined for a version with the template of the serving version',
      sameAs: 1,
      expected: undefined,
    },
    {
      name: 'returns a complete set when all replicas are waiting',
      replicas: [{}, {}, {}],
      expected: { size: 3, missing: 3, complete: true },
    },
    {
      name: 'returns an incomplete set while replicas are still to be created',
      replicas: [{}, {}],
      expected: { size: 3, missing: 3, complete: false },
    },
    {
      name: 'ignores replicas of the serving version',
      replicas: [{}, {}, {}, { ...placed, version: 1 }],
      expected: { size: 3, missing: 3, complete: true },
    },
    {
      name: 'counts one missing replica when a replica of the set is being replaced',
      replicas: [placed, placed, {}],
      expected: { size: 3, missing: 1, complete: true },
    },
    {
      name: 'counts a replacement that is still to be created as missing',
      replicas: [placed, {}],
      expected: { size: 3, missing: 2, complete: true },
    },
    {
      name: 'counts lost and stopping replicas as missing',
      replicas: [placed, { ...placed, lost: true }, { ...placed, desiredRunning: false }, {}, {}],
      expected: { size: 3, missing: 2, complete: true },
    },
    {
      name: 'counts a stopping replica as missing before its replacement is created',
      replicas: [placed, { ...placed, desiredRunning: false }],
      expected: { size: 3, missing: 2, complete: true },
    },
    {
      name: 'counts a failed replica on a lost node as missing',
      replicas: [placed, placed, { ...placed, phase: Phase.FAILED, lost: true }],
      expected: { size: 3, missing: 1, complete: true },
    },
    {
      name: 'does not count a succeeded replica as missing',
      replicas: [{ ...placed, phase: Phase.SUCCEEDED }, {}, {}],
      expected: { size: 2, missing: 2, complete: true },
    },
  ])('$name', ({ expected, name: _name, ...testCase }) => {
    expect(findSet(testCase)).toEqual(expected);
  });
});
