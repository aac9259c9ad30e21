import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  ReplicaStatus_Phase as Phase,
  Taint_Effect as Effect,
  TaintSchema,
  WorkloadSpec_Mode as Mode,
  WorkloadSpecSchema,
} from '@cloudless/api';
import {
  NodeRecordSchema,
  ReplicaRecordSchema,
  RequestRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';
import type { CheckedView } from '../parts/durable-records.js';
import type { NodeFacts } from '../parts/node-facts.js';
import {
  creationsKeepCeiling,
  onlyDeadNodesLoseReplicas,
  placementsFit,
  replicasNeverMove,
  requestsAreAppliedOnce,
  specsOnlyGoForward,
  stopsKeepMinAvailable,
  type Checker,
} from './commit-checkers.js';

const READY = { phase: Phase.RUNNING, ready: true };
const replica = (init: MessageInitShape<typeof ReplicaRecordSchema> = {}) =>
  create(ReplicaRecordSchema, {
    id: 'u-1',
    uid: 'u',
    version: 1,
    nodeId: 'node-1',
    desiredRunning: true,
    ...READY,
    ...init,
  });
const workload = ({ generation = 2n, replicas = 2, mode = Mode.REPLICATED } = {}) =>
  create(WorkloadRecordSchema, {
    uid: 'u',
    name: 'web',
    version: 1,
    generation,
    spec: create(WorkloadSpecSchema, { replicas, mode }),
  });
const change = (kind: string, before: unknown, after: unknown): RecordChange =>
  ({ kind, id: 'x', before, after }) as RecordChange;

/**
 * A workload with two replicas on a node of 100 m CPU. Replicas of version 2 request no CPU and
 * host port 80. The store holds a forced drain of node-2.
 */
function aView(replicas: readonly ReturnType<typeof replica>[], mode?: Mode): CheckedView {
  const stored = replicas.map((value) => ({ value, revision: 1n }));
  const nodes = [
    create(NodeRecordSchema, { id: 'node-1', hello: { capacity: { cpuMillis: 100 } } }),
    create(NodeRecordSchema, { id: 'node-2', draining: true, drain: { force: true } }),
  ];
  const templates = [
    { resources: { requests: { cpuMillis: 60 } } },
    { ports: [{ containerPort: 8080, hostPort: 80 }, { containerPort: 8081 }] },
  ];
  return {
    workload: () => ({ value: workload(mode === undefined ? {} : { mode }), revision: 1n }),
    control: () => undefined,
    node: (id: string) => {
      const value = nodes.find((node) => node.id === id);
      return value === undefined ? undefined : { value, revision: 1n };
    },
    version: (_uid: string, version: number) =>
      create(VersionRecordSchema, { version, template: templates[version - 1]! }),
    replicasOf: () => stored,
    replicasOn: () => stored,
  } as unknown as CheckedView;
}

const HEALTHY_NODE: NodeFacts = {
  alive: new Set(['node-1']),
  draining: new Set<string>(),
  cordoned: new Set<string>(),
};
const TWO_HEALTHY_NODES: NodeFacts = { ...HEALTHY_NODE, alive: new Set(['node-1', 'node-2']) };
const tainted = (effect: Effect) =>
  new Map([['node-1', [create(TaintSchema, { key: 'spot', effect })]]]);
const three = [replica(), replica({ id: 'u-2' }), replica({ id: 'u-3' })];
const leaving = replica({ desiredRunning: false });
/** The replica u-1 of node-1 continues after its loss; the waiting replacement is deleted. */
const takenBack = [
  change(
    'replica',
    replica({ lost: true, desiredRunning: false, ready: false, phase: Phase.FAILED }),
    replica({ orderRevision: 1n }),
  ),
  change('replica', replica({ id: 'u-2', nodeId: '', phase: Phase.PENDING }), undefined),
];
const changeOfNode1 = (before: object, after: object): RecordChange => ({
  ...change('node', create(NodeRecordSchema, before), create(NodeRecordSchema, after)),
  id: 'node-1',
});
const onDrained = replica({ id: 'u-2', nodeId: 'node-2' });
const rows: readonly {
  readonly name: string;
  readonly check: Checker;
  readonly changes: readonly RecordChange[];
  readonly replicas?: readonly ReturnType<typeof replica>[];
  readonly nodeFacts?: NodeFacts;
  readonly mode?: Mode;
  readonly violation: string;
}[] = [
  {
    name: 'a replica that moves',
    check: replicasNeverMove,
    changes: [change('replica', replica(), replica({ nodeId: 'node-2' }))],
    violation: 'u-1 moved from node-1 to node-2',
  },
  {
    name: 'a replica whose phase goes back',
    check: replicasNeverMove,
    changes: [change('replica', replica({ phase: Phase.STOPPED }), replica())],
    violation: 'u-1 went back from phase 5 to 3',
  },
  {
    name: 'an order with a lower revision than the previous one',
    check: replicasNeverMove,
    changes: [change('replica', replica({ orderRevision: 9n }), replica({ orderRevision: 8n }))],
    violation: 'u-1 has an older order revision than before',
  },
  {
    name: 'a stop that is revoked',
    check: replicasNeverMove,
    changes: [change('replica', leaving, replica())],
    violation: 'u-1 is wanted again after its stop was requested',
  },
  {
    name: 'more replicas than the ceiling',
    check: creationsKeepCeiling,
    replicas: [...three, replica({ id: 'u-4' })],
    changes: [change('replica', undefined, replica({ id: 'u-4' }))],
    violation: 'web has 4 live replicas, but its ceiling is 3',
  },
  {
    name: 'a voluntary stop below min_available',
    check: stopsKeepMinAvailable,
    replicas: [leaving],
    changes: [change('replica', replica(), leaving)],
    violation: 'web has 0 ready replicas after a voluntary stop, but min_available is 1',
  },
  {
    name: 'a voluntary stop while the other ready replica is on a silent node',
    check: stopsKeepMinAvailable,
    replicas: [leaving, replica({ id: 'u-2', nodeId: 'node-9' })],
    changes: [change('replica', replica(), leaving)],
    violation: 'web has 0 ready replicas after a voluntary stop, but min_available is 1',
  },
  {
    name: 'a voluntary stop while the other ready replica is on a node with a forced drain',
    check: stopsKeepMinAvailable,
    replicas: [leaving, onDrained],
    changes: [change('replica', replica(), leaving)],
    nodeFacts: { ...TWO_HEALTHY_NODES, draining: new Set(['node-2']) },
    violation: 'web has 0 ready replicas after a voluntary stop, but min_available is 1',
  },
  {
    name: 'a stop on a node with a forced drain that the coordinator did not know',
    check: stopsKeepMinAvailable,
    replicas: [replica({ ...onDrained, desiredRunning: false })],
    changes: [change('replica', onDrained, replica({ ...onDrained, desiredRunning: false }))],
    nodeFacts: TWO_HEALTHY_NODES,
    violation: 'web has 0 ready replicas after a voluntary stop, but min_available is 1',
  },
  {
    name: 'reservations above the capacity of a node',
    check: placementsFit,
    replicas: three,
    changes: [change('replica', replica({ nodeId: '' }), replica())],
    violation: 'node-1 holds 180 of 100 m CPU',
  },
  {
    name: 'a host port that is assigned twice, also while one replica leaves',
    check: placementsFit,
    replicas: [replica({ version: 2, desiredRunning: false }), replica({ id: 'u-2', version: 2 })],
    changes: [change('replica', replica({ version: 2, nodeId: '' }), replica({ version: 2 }))],
    violation: 'node-1 assigns host port 80/tcp twice',
  },
  {
    name: 'a placement on a cordoned node',
    check: placementsFit,
    replicas: [replica()],
    changes: [change('replica', replica({ nodeId: '' }), replica())],
    nodeFacts: { ...HEALTHY_NODE, cordoned: new Set(['node-1']) },
    violation: 'a replica was placed on node-1, which is cordoned',
  },
  {
    name: 'a placement on a node with an untolerated taint',
    check: placementsFit,
    replicas: [replica()],
    changes: [change('replica', replica({ nodeId: '' }), replica())],
    nodeFacts: { ...HEALTHY_NODE, taints: tainted(Effect.NO_SCHEDULE) },
    violation: 'u-1 was placed on node-1, whose taint spot it does not tolerate',
  },
  {
    name: 'two replicas of one version of a GLOBAL workload on one node',
    check: creationsKeepCeiling,
    replicas: [replica(), replica({ id: 'u-2' })],
    changes: [change('replica', undefined, replica({ id: 'u-2' }))],
    mode: Mode.GLOBAL,
    violation: 'web has 2 replicas of 1 versions on node-1',
  },
  {
    name: 'a voluntary stop of the only replica of a GLOBAL workload',
    check: stopsKeepMinAvailable,
    replicas: [leaving],
    changes: [change('replica', replica(), leaving)],
    mode: Mode.GLOBAL,
    violation: 'web has 0 ready replicas after a voluntary stop, but min_available is 1',
  },
  {
    name: 'a replica declared lost on a node that is alive',
    check: onlyDeadNodesLoseReplicas,
    changes: [change('replica', replica(), replica({ lost: true }))],
    violation: 'u-1 was declared lost on a node that is alive',
  },
  {
    name: 'a spec that returns to an older generation',
    check: specsOnlyGoForward,
    changes: [change('workload', workload(), workload({ generation: 1n }))],
    violation: 'web went back from generation 2 to 1',
  },
  {
    name: 'a spec that changes without a new generation',
    check: specsOnlyGoForward,
    changes: [change('workload', workload(), workload({ replicas: 5 }))],
    violation: 'web changed within generation 2',
  },
  {
    name: 'a workload that disappears without a deletion',
    check: specsOnlyGoForward,
    changes: [change('workload', workload(), undefined)],
    violation: 'web disappeared without a deletion',
  },
  {
    name: 'a request that is applied twice',
    check: requestsAreAppliedOnce,
    changes: [change('request', create(RequestRecordSchema), create(RequestRecordSchema))],
    violation: 'request x was applied twice',
  },
];

describe('commit checkers', () => {
  it.each(rows)('report $name', ({ check, changes, replicas = [], mode, ...row }) => {
    const { nodeFacts = HEALTHY_NODE, violation } = row;
    expect(check({ view: aView(replicas, mode), changes, nodeFacts })).toEqual([violation]);
  });

  it.each([
    { name: 'in a commit without its node', changes: takenBack },
    {
      name: 'after the return of its node',
      changes: [...takenBack, changeOfNode1({ lost: false }, { lost: false })],
    },
    {
      name: 'beside its replacement',
      changes: [...takenBack.slice(0, 1), changeOfNode1({ lost: true }, { lost: false })],
    },
  ])('report a lost replica that continues $name', ({ changes }) => {
    expect(replicasNeverMove({ view: aView([]), changes, nodeFacts: HEALTHY_NODE })).toContain(
      'u-1 was declared lost and is no longer',
    );
  });

  it.each([
    {
      name: 'a stop that leaves enough ready replicas',
      check: stopsKeepMinAvailable,
      changes: [change('replica', replica(), leaving)],
      replicas: three,
    },
    {
      name: 'a stop decided before the coordinator knew the forced drain of another node',
      check: stopsKeepMinAvailable,
      changes: [change('replica', replica(), leaving)],
      replicas: [leaving, onDrained],
      nodeFacts: TWO_HEALTHY_NODES,
    },
    {
      name: 'a replacement of a replica on a draining node',
      check: creationsKeepCeiling,
      replicas: [...three, replica({ id: 'u-4' })],
      changes: [change('replica', undefined, replica({ id: 'u-4' }))],
      nodeFacts: { ...HEALTHY_NODE, draining: new Set(['node-1']) },
    },
    {
      name: 'a replacement of a replica that a NO_EXECUTE taint evicts',
      check: creationsKeepCeiling,
      replicas: [...three, replica({ id: 'u-4' })],
      changes: [change('replica', undefined, replica({ id: 'u-4' }))],
      nodeFacts: { ...HEALTHY_NODE, taints: tainted(Effect.NO_EXECUTE) },
    },
    {
      name: 'a host port that is free again',
      check: placementsFit,
      replicas: [replica({ version: 2, phase: Phase.STOPPED }), replica({ id: 'u-2', version: 2 })],
      changes: [change('replica', replica({ version: 2, nodeId: '' }), replica({ version: 2 }))],
    },
    {
      name: 'a lost replica that continues in the commit by which its node returns',
      check: replicasNeverMove,
      changes: [...takenBack, changeOfNode1({ lost: true }, { lost: false })],
    },
    {
      name: 'a lost replica that continues before others and before its node returns',
      check: replicasNeverMove,
      changes: [...takenBack, changeOfNode1({ lost: true }, { lost: true })],
    },
    {
      name: 'a replica declared lost with its node',
      check: onlyDeadNodesLoseReplicas,
      changes: [change('replica', replica(), replica({ lost: true }))],
      nodeFacts: { ...HEALTHY_NODE, alive: new Set<string>() },
    },
  ])('accept $name', ({ check, changes, replicas = [], nodeFacts = HEALTHY_NODE }) => {
    expect(check({ view: aView(replicas), changes, nodeFacts })).toEqual([]);
  });
});
