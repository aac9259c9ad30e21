import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { SimulatedChangeSchema, WorkloadSpecSchema } from '@cloudless/api';
import { NodeRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import { createSnapshotView, type SimulatedChanges } from '@cloudless/cluster-state';
import { resolveSimulatedChanges } from './resolve-changes.js';

type Change = NonNullable<MessageInitShape<typeof SimulatedChangeSchema>['change']>;

const aNode = (id: string, zone: string, region = '') =>
  create(NodeRecordSchema, {
    id,
    hello: {
      ...{ zone, region, capacity: { cpuMillis: 4_000, memoryBytes: 8n }, maxReplicas: 20 },
      capabilities: ['runtime.process', `only.${id}`],
      labels: { disk: 'ssd' },
    },
    labels: { rack: id },
  });
const view = createSnapshotView({
  revision: 3n,
  nodes: [aNode('n1', 'a', 'eu'), aNode('n2', 'a', 'us'), aNode('n3', 'b', 'us')],
  workloads: [
    create(WorkloadRecordSchema, {
      ...{ uid: 'u1', namespace: 'default', name: 'web', generation: 4n },
      spec: create(WorkloadSpecSchema, { command: ['serve'], replicas: 2 }),
    }),
  ],
  versions: [],
  controls: [],
  replicas: [],
});
const deps = { explainImpossibleLimits: () => undefined, clock: { wallTime: () => 1_000 } };
const resolve = (...changes: readonly Change[]): SimulatedChanges =>
  resolveSimulatedChanges(
    deps,
    view,
    changes.map((change) => create(SimulatedChangeSchema, { change })),
  );
const refuse = (...changes: readonly Change[]): string => {
  try {
    resolve(...changes);
  } catch (reason) {
    if (reason instanceof InvalidInputError)
      return reason.violations.map(({ field, message }) => `${field}: ${message}`).join('; ');
    return reason instanceof Error ? reason.message : String(reason);
  }
  return 'not refused';
};

describe('resolveSimulatedChanges', () => {
  it('resolves lost and drained nodes, with whole zones', () => {
    const { nodes } = resolve(
      { case: 'loseZone', value: 'us/a' },
      { case: 'loseNode', value: 'n3' },
      { case: 'drainNode', value: 'n1' },
    );
    expect(nodes).toMatchObject([
      { kind: 'lost', node: { id: 'n2', lost: true, lossConfirmed: true } },
      { kind: 'lost', node: { id: 'n3' } },
      { kind: 'changed', node: { id: 'n1', draining: true, cordoned: true } },
    ]);
    expect(resolve({ case: 'loseZone', value: 'a' }).nodes).toHaveLength(2);
  });

  it('resolves changes of workloads as the RPCs for these changes do', () => {
    const { workloads, deletions } = resolve({
      case: 'scale',
      value: { name: 'web', replicas: 5 },
    });
    expect(workloads).toMatchObject([
      { name: 'web', current: { uid: 'u1' }, spec: { replicas: 5 } },
    ]);
    expect(deletions).toEqual([]);
    const spec = { command: ['new'] };
    expect(resolve({ case: 'apply', value: { name: 'new', spec } }).workloads).toMatchObject([
      { namespace: 'default', name: 'new', current: undefined, spec },
    ]);
    expect(resolve({ case: 'delete', value: { name: 'web' } }).deletions).toMatchObject([
      { uid: 'u1', deletionRequestedAt: {} },
    ]);
  });

  it('creates added nodes like an existing node, with other values where they are set', () => {
    const { addedNodes } = resolve({
      case: 'addNodes',
      value: { count: 2, like: 'n1', zone: 'c', labels: { disk: 'hdd' }, maxReplicas: 5 },
    });
    expect(addedNodes.map(({ id }) => id)).toEqual(['new-1', 'new-2']);
    expect(addedNodes[0]).toMatchObject({
      zone: 'c',
      region: 'eu',
      labels: { disk: 'hdd', rack: 'n1' },
      hello: {
        capacity: { cpuMillis: 4_000 },
        capabilities: ['runtime.process', 'only.n1'],
        maxReplicas: 5,
      },
    });
  });

  it('gives added nodes the capabilities that all nodes have, and ids that no node has', () => {
    const capacity = { cpuMillis: 1_000, memoryBytes: 1n };
    const { addedNodes } = resolve(
      { case: 'addNodes', value: { capacity } },
      { case: 'addNodes', value: { capacity } },
      { case: 'addNodes', value: { capacity, name: 'n' } },
    );
    expect(addedNodes.map(({ id }) => id)).toEqual(['new-1', 'new-2', 'n-1']);
    expect(addedNodes[0]?.hello?.capabilities).toEqual(['runtime.process']);
  });

  it.each<{ readonly name: string; readonly changes: readonly Change[]; readonly text: string }>([
    {
      name: 'an unknown node',
      changes: [{ case: 'loseNode', value: 'n9' }],
      text: 'node "n9" not found',
    },
    {
      name: 'an unknown zone',
      changes: [{ case: 'loseZone', value: 'eu/b' }],
      text: 'zone "eu/b" has no nodes; zones of this cluster: a, b',
    },
    {
      name: 'an unknown workload',
      changes: [{ case: 'scale', value: { name: 'db', replicas: 1 } }],
      text: 'workload "default/db" not found',
    },
    {
      name: 'two changes of one node',
      changes: [
        { case: 'loseZone', value: 'a' },
        { case: 'drainNode', value: 'n1' },
      ],
      text: 'changes[1]: is about node n1, as changes[0] is; a simulation has at most one change of each workload and node',
    },
    {
      name: 'two changes of one workload',
      changes: [
        { case: 'scale', value: { name: 'web', replicas: 1 } },
        { case: 'delete', value: { name: 'web' } },
      ],
      text: 'changes[1]: is about workload default/web, as changes[0] is; a simulation has at most one change of each workload and node',
    },
    {
      name: 'nodes without capacity',
      changes: [{ case: 'addNodes', value: { count: 3 } }],
      text: 'changes[0].capacity: needs cpu_millis and memory_bytes above 0, or "like" with the id of a node',
    },
    {
      name: 'more than 5 000 added nodes',
      changes: [
        { case: 'addNodes', value: { count: 5_000, like: 'n1' } },
        { case: 'addNodes', value: { like: 'n1' } },
      ],
      text: 'changes[1].add_nodes.count: more than 5000 nodes are added',
    },
    {
      name: 'a request id',
      changes: [{ case: 'delete', value: { name: 'web', requestId: 'r1' } }],
      text: 'changes[0].request_id: must be empty: a simulation changes nothing',
    },
    {
      name: 'an empty change',
      changes: [{ case: undefined } as Change],
      text: 'changes[0]: is empty: set one change, such as lose_node, scale or apply',
    },
  ])('refuses $name', ({ changes, text }) => {
    expect(refuse(...changes)).toBe(text);
  });
});
