import { create } from '@bufbuild/protobuf';
import {
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as Restart,
  WorkloadSpec_Mode as Mode,
} from '@cloudless/api';
import {
  NodeRecordSchema,
  ReplicaRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
  type ReplicaRecord,
} from '@cloudless/api/store';
import { toNodeId } from '@cloudless/base';
import { createCluster, type NodeAvailability, type Taint } from '@cloudless/scheduler';
import { findGlobalTargets, findOccupiedTargets } from './global-targets.js';

interface Node {
  readonly id: string;
  /** Why the node accepts nothing new. */
  readonly closed?: keyof NodeAvailability;
  readonly taints?: readonly Taint[];
  /** Also set in the node record, which evicts the replicas of the node. */
  readonly draining?: boolean;
}

type Replica = Partial<
  Pick<ReplicaRecord, 'nodeId' | 'onlyNodeId' | 'version' | 'phase' | 'lost' | 'desiredRunning'>
>;

const running: Replica = { desiredRunning: true, phase: Phase.RUNNING, version: 2 };

function findTargets(nodes: readonly Node[], replicas: readonly Replica[], mode = Mode.GLOBAL) {
  const cluster = createCluster();
  for (const { id, closed, taints = [], draining = false } of nodes) {
    cluster.upsertNode({
      id: toNodeId(id),
      capacity: { cpuMillis: 0, memoryBytes: 0 },
      capabilities: ['runtime.process'],
      taints,
      availability: { draining, ...(closed === undefined ? {} : { [closed]: true }) },
    });
  }
  const view = {
    node: (id: string) => {
      const draining = nodes.find((node) => node.id === id)?.draining ?? false;
      return { value: create(NodeRecordSchema, { id, draining }), revision: 1n };
    },
    // Version 3 is an undo to version 1.
    version: (_uid: string, version: number) =>
      create(VersionRecordSchema, { version, sameAs: version === 3 ? 1 : 0 }),
  };
  const spec = { command: ['a'], mode, restart: { policy: Restart.NEVER } };
  const workload = create(WorkloadRecordSchema, { uid: 'w', version: 2, spec });
  const records = replicas.map((replica, index) =>
    create(ReplicaRecordSchema, { id: `w-${index}`, uid: 'w', ...running, ...replica }),
  );
  const targets = findGlobalTargets(
    { cluster, view, clock: { wallTime: () => 0 } },
    workload,
    records,
  );
  return { targets, records };
}

describe('findGlobalTargets', () => {
  it.each<{
    name: string;
    nodes: readonly Node[];
    replicas: readonly Replica[];
    nodeIds: readonly string[];
    schedulable?: readonly string[];
    ended?: readonly string[];
    pinned?: readonly string[];
  }>([
    {
      name: 'returns the fitting nodes, sorted by id',
      nodes: [{ id: 'b' }, { id: 'a' }],
      replicas: [],
      nodeIds: ['a', 'b'],
    },
    {
      name: 'excludes a cordoned node whose replica is not placed yet',
      nodes: [{ id: 'a' }, { id: 'b', closed: 'cordoned' }],
      replicas: [{ onlyNodeId: 'b', phase: Phase.PENDING }],
      nodeIds: ['a'],
    },
    ...(['cordoned', 'quarantined', 'lost'] as const).map((closed) => ({
      name: `keeps a ${closed} node that has a replica of this version`,
      nodes: [{ id: 'a', closed }],
      replicas: [{ nodeId: 'a' }],
      nodeIds: ['a'],
    })),
    {
      name: 'keeps a node with a NoSchedule taint and excludes a node with a NoExecute taint',
      nodes: [
        { id: 'a', taints: [{ key: 'k', effect: 'NoSchedule' }] },
        { id: 'b', taints: [{ key: 'k', effect: 'NoExecute' }] },
      ],
      replicas: [{ nodeId: 'a' }, { nodeId: 'b' }],
      nodeIds: ['a'],
    },
    {
      name: 'excludes a draining node',
      nodes: [{ id: 'a', draining: true }],
      replicas: [{ nodeId: 'a' }],
      nodeIds: [],
    },
    {
      name: 'excludes cordoned nodes whose replica is lost, stopping or failed',
      nodes: ['a', 'b', 'c'].map((id) => ({ id, closed: 'cordoned' as const })),
      replicas: [
        { nodeId: 'a', lost: true, phase: Phase.FAILED, desiredRunning: false },
        { nodeId: 'b', desiredRunning: false, phase: Phase.STOPPING },
        { nodeId: 'c', desiredRunning: false, phase: Phase.FAILED },
      ],
      nodeIds: [],
    },
    {
      name: 'pins a replica of another version on a cordoned node',
      nodes: [{ id: 'a' }, { id: 'b', closed: 'cordoned' }],
      replicas: [
        { nodeId: 'a', version: 1 },
        { nodeId: 'b', version: 1 },
      ],
      nodeIds: ['a', 'b'],
      schedulable: ['a'],
      pinned: ['w-1'],
    },
    {
      name: 'pins no replica on a cordoned node that has a replica of the wanted version',
      nodes: [{ id: 'b', closed: 'cordoned' }],
      replicas: [
        { nodeId: 'b', version: 1 },
        { nodeId: 'b', version: 2 },
      ],
      nodeIds: ['b'],
    },
    {
      name: 'returns nodes whose replica has finished as ended, also when the node is gone',
      nodes: [{ id: 'a' }, { id: 'b' }, { id: 'c', draining: true }],
      replicas: [
        { nodeId: 'a', phase: Phase.SUCCEEDED },
        { nodeId: 'c', phase: Phase.FAILED },
        { nodeId: 'd', phase: Phase.SUCCEEDED },
      ],
      nodeIds: ['a', 'b', 'c', 'd'],
      schedulable: ['b'],
      ended: ['a', 'c', 'd'],
    },
    {
      name: 'schedules on a node whose finished replica has another version',
      nodes: [{ id: 'a' }],
      replicas: [{ nodeId: 'a', phase: Phase.SUCCEEDED, version: 1 }],
      nodeIds: ['a'],
    },
  ])('$name', ({ nodes, replicas, nodeIds, schedulable = nodeIds, ended = [], pinned = [] }) => {
    expect(findTargets(nodes, replicas).targets).toEqual({
      nodeIds,
      schedulable,
      ended,
      pinned: new Set(pinned),
    });
  });

  it('returns undefined for a REPLICATED workload', () => {
    expect(findTargets([{ id: 'a' }], [], Mode.REPLICATED).targets).toBeUndefined();
  });
});

describe('findOccupiedTargets', () => {
  it('returns the target nodes with a replica, also a finished one', () => {
    const nodes = ['a', 'b', 'c'].map((id) => ({ id }));
    const { targets, records } = findTargets(nodes, [
      { nodeId: 'a' },
      { nodeId: 'b', phase: Phase.SUCCEEDED },
      { onlyNodeId: 'c' },
    ]);
    expect([...findOccupiedTargets(targets!, records)]).toEqual(['a', 'b']);
  });
});
