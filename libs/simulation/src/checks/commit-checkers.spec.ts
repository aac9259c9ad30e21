import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase, WorkloadSpecSchema } from '@cloudless/api';
import {
  NodeRecordSchema,
  ReplicaRecordSchema,
  RequestRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';
import type { CheckedView } from '../parts/records.js';
import {
  creationsKeepTheCeiling,
  onlyTheLostAreGivenUp,
  placementsFit,
  replicasNeverMove,
  requestsApplyOnce,
  specsOnlyGoForward,
  stopsKeepTheFloor,
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
const workload = ({ generation = 2n, replicas = 2 } = {}) =>
  create(WorkloadRecordSchema, {
    uid: 'u',
    name: 'web',
    version: 1,
    generation,
    spec: create(WorkloadSpecSchema, { replicas }),
  });
const change = (kind: string, before: unknown, after: unknown): RecordChange =>
  ({ kind, id: 'x', before, after }) as RecordChange;

/**
 * A workload of two replicas on a node of 100 m; those of version 2 want no CPU and host port 80.
 */
function viewOf(replicas: readonly ReturnType<typeof replica>[]): CheckedView {
  const stored = replicas.map((value) => ({ value, revision: 1n }));
  const node = create(NodeRecordSchema, { id: 'node-1', hello: { capacity: { cpuMillis: 100 } } });
  const templates = [
    { resources: { requests: { cpuMillis: 60 } } },
    { ports: [{ containerPort: 8080, hostPort: 80 }, { containerPort: 8081 }] },
  ];
  return {
    workload: () => ({ value: workload(), revision: 1n }),
    control: () => undefined,
    node: (id: string) => (id === 'node-1' ? { value: node, revision: 1n } : undefined),
    version: (_uid: string, version: number) =>
      create(VersionRecordSchema, { version, template: templates[version - 1]! }),
    replicasOf: () => stored,
    replicasOn: () => stored,
  } as unknown as CheckedView;
}

const ALL_WELL = {
  alive: new Set(['node-1']),
  draining: new Set<string>(),
  cordoned: new Set<string>(),
};
const three = [replica(), replica({ id: 'u-2' }), replica({ id: 'u-3' })];
const leaving = replica({ desiredRunning: false });
const rows: readonly {
  readonly name: string;
  readonly check: Checker;
  readonly changes: readonly RecordChange[];
  readonly replicas?: readonly ReturnType<typeof replica>[];
  readonly evidence?: typeof ALL_WELL;
  readonly says: string;
}[] = [
  {
    name: 'a replica that moves',
    check: replicasNeverMove,
    changes: [change('replica', replica(), replica({ nodeId: 'node-2' }))],
    says: 'u-1 moved from node-1 to node-2',
  },
  {
    name: 'a replica that comes back',
    check: replicasNeverMove,
    changes: [change('replica', replica({ phase: Phase.STOPPED }), replica())],
    says: 'u-1 went back from phase 5 to 3',
  },
  {
    name: 'an order that is older than the one before',
    check: replicasNeverMove,
    changes: [change('replica', replica({ orderRevision: 9n }), replica({ orderRevision: 8n }))],
    says: 'u-1 has an older order than before',
  },
  {
    name: 'a stop that is taken back',
    check: replicasNeverMove,
    changes: [change('replica', leaving, replica())],
    says: 'u-1 is wanted again after it was not',
  },
  {
    name: 'more replicas than the ceiling',
    check: creationsKeepTheCeiling,
    replicas: [...three, replica({ id: 'u-4' })],
    changes: [change('replica', undefined, replica({ id: 'u-4' }))],
    says: 'web has 4 live replicas, 3 are the most it may have',
  },
  {
    name: 'a stop by choice below the floor',
    check: stopsKeepTheFloor,
    replicas: [leaving],
    changes: [change('replica', replica(), leaving)],
    says: 'web was taken to 0 ready by choice, 1 must stay',
  },
  {
    name: 'a stop by choice while the other ready one is on a silent node',
    check: stopsKeepTheFloor,
    replicas: [leaving, replica({ id: 'u-2', nodeId: 'node-9' })],
    changes: [change('replica', replica(), leaving)],
    says: 'web was taken to 0 ready by choice, 1 must stay',
  },
  {
    name: 'more on a node than it has',
    check: placementsFit,
    replicas: three,
    changes: [change('replica', replica({ nodeId: '' }), replica())],
    says: 'node-1 holds 180 m of 100 m CPU',
  },
  {
    name: 'a host port that is given twice, also while one of them leaves',
    check: placementsFit,
    replicas: [replica({ version: 2, desiredRunning: false }), replica({ id: 'u-2', version: 2 })],
    changes: [change('replica', replica({ version: 2, nodeId: '' }), replica({ version: 2 }))],
    says: 'node-1 has given host port 80/tcp twice',
  },
  {
    name: 'a placement on a cordoned node',
    check: placementsFit,
    replicas: [replica()],
    changes: [change('replica', replica({ nodeId: '' }), replica())],
    evidence: { ...ALL_WELL, cordoned: new Set(['node-1']) },
    says: 'a replica was placed on node-1, which is cordoned',
  },
  {
    name: 'a replica given up on a living node',
    check: onlyTheLostAreGivenUp,
    changes: [change('replica', replica(), replica({ lost: true }))],
    says: 'u-1 was given up on a living node',
  },
  {
    name: 'an older spec that comes back',
    check: specsOnlyGoForward,
    changes: [change('workload', workload(), workload({ generation: 1n }))],
    says: 'web went back from generation 2 to 1',
  },
  {
    name: 'a spec that changes and is not counted',
    check: specsOnlyGoForward,
    changes: [change('workload', workload(), workload({ replicas: 5 }))],
    says: 'web changed within generation 2',
  },
  {
    name: 'a workload that goes without being deleted',
    check: specsOnlyGoForward,
    changes: [change('workload', workload(), undefined)],
    says: 'web is gone and nobody deleted it',
  },
  {
    name: 'a request that is applied twice',
    check: requestsApplyOnce,
    changes: [change('request', create(RequestRecordSchema), create(RequestRecordSchema))],
    says: 'request x was applied twice',
  },
];

describe('checkers of commits', () => {
  it.each(rows)('find $name', ({ check, changes, replicas = [], evidence = ALL_WELL, says }) => {
    expect(check({ view: viewOf(replicas), changes, evidence })).toEqual([says]);
  });

  it.each([
    {
      name: 'a stop that leaves enough',
      check: stopsKeepTheFloor,
      changes: [change('replica', replica(), leaving)],
      replicas: three,
    },
    {
      name: 'a replica in place of one on a draining node',
      check: creationsKeepTheCeiling,
      replicas: [...three, replica({ id: 'u-4' })],
      changes: [change('replica', undefined, replica({ id: 'u-4' }))],
      evidence: { ...ALL_WELL, draining: new Set(['node-1']) },
    },
    {
      name: 'a host port that is free again',
      check: placementsFit,
      replicas: [replica({ version: 2, phase: Phase.STOPPED }), replica({ id: 'u-2', version: 2 })],
      changes: [change('replica', replica({ version: 2, nodeId: '' }), replica({ version: 2 }))],
    },
    {
      name: 'a replica given up with its node',
      check: onlyTheLostAreGivenUp,
      changes: [change('replica', replica(), replica({ lost: true }))],
      evidence: { ...ALL_WELL, alive: new Set<string>() },
    },
  ])('let pass $name', ({ check, changes, replicas = [], evidence = ALL_WELL }) => {
    expect(check({ view: viewOf(replicas), changes, evidence })).toEqual([]);
  });
});
