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
import { seatsOf, servedOf } from './seats.js';

interface Node {
  readonly id: string;
  readonly closed?: keyof NodeAvailability;
  readonly taints?: readonly Taint[];
  /** Also in its record, which says that replicas have to leave. */
  readonly draining?: boolean;
}

type Replica = Partial<
  Pick<ReplicaRecord, 'nodeId' | 'onlyNodeId' | 'version' | 'phase' | 'lost' | 'desiredRunning'>
>;

const running: Replica = { desiredRunning: true, phase: Phase.RUNNING, version: 2 };

function look(nodes: readonly Node[], replicas: readonly Replica[], mode = Mode.GLOBAL) {
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
  const seats = seatsOf({ cluster, view, clock: { wallTime: () => 0 } }, workload, records);
  return { seats, records };
}

describe('the seats of a GLOBAL workload', () => {
  it.each<{
    name: string;
    nodes: readonly Node[];
    replicas: readonly Replica[];
    nodeIds: readonly string[];
    open?: readonly string[];
    ended?: readonly string[];
    frozen?: readonly string[];
  }>([
    {
      name: 'are the fitting nodes, full or not',
      nodes: [{ id: 'b' }, { id: 'a' }],
      replicas: [],
      nodeIds: ['a', 'b'],
    },
    {
      name: 'are not on a closed node without a replica, nor for one that only waits for it',
      nodes: [{ id: 'a' }, { id: 'b', closed: 'cordoned' }],
      replicas: [{ onlyNodeId: 'b', phase: Phase.PENDING }],
      nodeIds: ['a'],
    },
    ...(['cordoned', 'quarantined', 'lost'] as const).map((closed) => ({
      name: `stay on a ${closed} node that has a replica of this version`,
      nodes: [{ id: 'a', closed }],
      replicas: [{ nodeId: 'a' }],
      nodeIds: ['a'],
    })),
    {
      name: 'stay under a NoSchedule taint and go under a NoExecute one',
      nodes: [
        { id: 'a', taints: [{ key: 'k', effect: 'NoSchedule' }] },
        { id: 'b', taints: [{ key: 'k', effect: 'NoExecute' }] },
      ],
      replicas: [{ nodeId: 'a' }, { nodeId: 'b' }],
      nodeIds: ['a'],
    },
    {
      name: 'go with a drain',
      nodes: [{ id: 'a', draining: true }],
      replicas: [{ nodeId: 'a' }],
      nodeIds: [],
    },
    {
      name: 'go with replicas that are lost, leave, or have failed and are to be replaced',
      nodes: ['a', 'b', 'c'].map((id) => ({ id, closed: 'cordoned' as const })),
      replicas: [
        { nodeId: 'a', lost: true, phase: Phase.FAILED, desiredRunning: false },
        { nodeId: 'b', desiredRunning: false, phase: Phase.STOPPING },
        { nodeId: 'c', desiredRunning: false, phase: Phase.FAILED },
      ],
      nodeIds: [],
    },
    {
      name: 'of another version are frozen where nothing can take their place',
      nodes: [{ id: 'a' }, { id: 'b', closed: 'cordoned' }],
      replicas: [
        { nodeId: 'a', version: 1 },
        { nodeId: 'b', version: 1 },
      ],
      nodeIds: ['a', 'b'],
      open: ['a'],
      frozen: ['w-1'],
    },
    {
      name: 'are open again once this version is there too',
      nodes: [{ id: 'b', closed: 'cordoned' }],
      replicas: [
        { nodeId: 'b', version: 1 },
        { nodeId: 'b', version: 2 },
      ],
      nodeIds: ['b'],
    },
    {
      name: 'whose replica has ended count and are not open, also on a node that is gone',
      nodes: [{ id: 'a' }, { id: 'b' }, { id: 'c', draining: true }],
      replicas: [
        { nodeId: 'a', phase: Phase.SUCCEEDED },
        { nodeId: 'c', phase: Phase.FAILED },
        { nodeId: 'd', phase: Phase.SUCCEEDED },
      ],
      nodeIds: ['a', 'b', 'c', 'd'],
      open: ['b'],
      ended: ['a', 'c', 'd'],
    },
    {
      name: 'whose replica ended with another version are open',
      nodes: [{ id: 'a' }],
      replicas: [{ nodeId: 'a', phase: Phase.SUCCEEDED, version: 1 }],
      nodeIds: ['a'],
    },
  ])('$name', ({ nodes, replicas, nodeIds, open = nodeIds, ended = [], frozen = [] }) => {
    expect(look(nodes, replicas).seats).toEqual({ nodeIds, open, ended, frozen: new Set(frozen) });
  });

  it('are none of a REPLICATED one', () => {
    expect(look([{ id: 'a' }], [], Mode.REPLICATED).seats).toBeUndefined();
  });

  it('are served where a replica is, also one that has ended', () => {
    const nodes = ['a', 'b', 'c'].map((id) => ({ id }));
    const { seats, records } = look(nodes, [
      { nodeId: 'a' },
      { nodeId: 'b', phase: Phase.SUCCEEDED },
      { onlyNodeId: 'c' },
    ]);
    expect([...servedOf(seats!, records)]).toEqual(['a', 'b']);
  });
});
