import { clone, create, equals, fromBinary, toBinary } from '@bufbuild/protobuf';
import { PlacementSchema, WorkloadSpecSchema } from '@cloudless/api';
import { ControlRecordSchema, NodeRecordSchema, ReplicaRecordSchema } from '@cloudless/api/store';
import { listSpecLeaves } from '@cloudless/api/testing';
import { toNodeId } from '@cloudless/base';
import type { SimulatedChanges } from '@cloudless/cluster-state';
import { aNodeRecord, aSnapshot } from '../testing/records.js';
import { simulateCluster } from './cluster-simulation.js';
import { encodeSnapshot, readSnapshot } from './cluster-snapshot.js';
import { createRecordSource, type RecordSource } from './record-source.js';
import { redactControl, redactNode, redactReplica, redactSpec } from './redaction.js';

const clock = { wallTime: () => 5_000 };
const nodes = ['n1', 'n2', 'n3'].map((id) => aNodeRecord(id, `zone-${id}`));
const source = createRecordSource(
  aSnapshot(nodes, {
    web: { spec: { env: { KEY: 'SECRET' }, args: ['SECRET'] }, on: ['n1', 'n2', ''] },
    db: { spec: { priority: 90 }, on: ['n1'] },
  }),
  { clock },
);
const [node1 = aNodeRecord('n1')] = nodes;
const changes: SimulatedChanges = {
  ...{ addedNodes: [], workloads: [], deletions: [] },
  nodes: [{ kind: 'lost', node: Object.assign(clone(NodeRecordSchema, node1), { lost: true }) }],
};

function simulate(from: RecordSource): unknown {
  const steps = simulateCluster(from, changes);
  for (;;) {
    const next = steps.next();
    if (next.done === true) return next.value;
  }
}
const encode = (): Uint8Array => Buffer.concat([...encodeSnapshot(source, 'c1')]);
async function* split(bytes: Uint8Array, size = bytes.length): AsyncGenerator<Uint8Array> {
  for (let from = 0; from < bytes.length; from += size) {
    await Promise.resolve();
    yield bytes.subarray(from, from + size);
  }
}

describe('a snapshot', () => {
  it('leads to the same simulation as the state that it was taken of', async () => {
    const read = await readSnapshot(split(encode(), 7));
    expect(read).toMatchObject({ nodes: 3, workloads: 2, replicas: 4 });
    expect(read.header).toMatchObject({ clusterId: 'c1', revision: 7n });
    expect(simulate(read.createSource(clock))).toEqual(simulate(source));
    expect(simulate(source)).toMatchObject({ totalWorkloads: 2, waitingAfter: 0 });
  });

  it('keeps the resources that are held for a replica whose victims have not stopped', async () => {
    const records = aSnapshot(nodes, { web: { spec: {}, on: [''] } });
    for (const replica of records.replicas) replica.nominatedNodeId = 'n2';
    const live = createRecordSource(records, { clock });
    const bytes = Buffer.concat([...encodeSnapshot(live, 'c1')]);
    const read = (await readSnapshot(split(bytes))).createSource(clock);
    for (const { cluster } of [live, read])
      expect(cluster.usage(toNodeId('n2'))).toMatchObject({ replicas: 1 });
  });

  it('contains no environment values and no arguments', () => {
    expect(Buffer.from(encode()).includes('SECRET')).toBe(false);
  });

  it.each([
    { name: 'is empty', damage: () => new Uint8Array(), problem: 'its end is missing' },
    {
      name: 'is cut off between two entries or within one',
      damage: (bytes: Uint8Array) => bytes.subarray(0, bytes.length - 3),
      problem: 'it cannot be decoded',
    },
    {
      name: 'is another file',
      damage: () => Buffer.from('kind: Workload\n'),
      problem: 'the file is no complete snapshot',
    },
    {
      name: 'continues after its end',
      damage: (bytes: Uint8Array) => Buffer.concat([bytes, bytes]),
      problem: 'it continues after its end',
    },
  ])('is refused when the file $name', async ({ damage, problem }) => {
    const reading = readSnapshot(split(damage(encode())));
    await expect(reading).rejects.toThrow(problem);
    await expect(reading).rejects.toMatchObject({ kind: 'precondition' });
  });
});

describe('the redaction of a snapshot', () => {
  it('keeps these fields of a spec, and no field that is added later without a look at it', () => {
    const empty = create(WorkloadSpecSchema);
    const kept = listSpecLeaves().filter(
      ({ spec }) => !equals(WorkloadSpecSchema, redactSpec(spec), empty),
    );
    expect(kept.map(({ path }) => path)).toMatchSnapshot();
  });

  it('removes fields that this version does not know, also of nested messages', () => {
    const unknown = [{ no: 900, wireType: 2, data: Buffer.from('\x06SECRET') }];
    const records = aSnapshot(nodes, { web: { spec: {}, on: ['n1'] } });
    const [workload] = records.workloads;
    Object.assign(workload ?? {}, { $unknown: unknown });
    workload!.spec!.placement = create(PlacementSchema, { zones: ['a'] });
    workload!.spec!.placement.$unknown = unknown;
    const live = createRecordSource(records, { clock });
    const bytes = Buffer.concat([...encodeSnapshot(live, 'c1')]);
    expect(bytes.includes('SECRET')).toBe(false);
  });

  it('removes reasons and output from control records', () => {
    const control = create(ControlRecordSchema, {
      ...{ uid: 'web', rolloutReason: 'SECRET', nextSequence: 4n },
      rollout: { version: 3, failure: { lastLines: ['SECRET'] } },
    });
    const redacted = redactControl(control);
    expect(redacted).toMatchObject({ uid: 'web', nextSequence: 4n, rollout: { version: 3 } });
    const bytes = toBinary(ControlRecordSchema, redacted);
    expect(Buffer.from(bytes).includes('SECRET')).toBe(false);
  });

  it('removes every text of a spec that placement and rollouts do not need', () => {
    const spec = create(WorkloadSpecSchema, {
      image: 'shop/web:2',
      command: ['run', 'SECRET'],
      args: ['SECRET'],
      env: { TOKEN: 'SECRET' },
      annotations: { note: 'SECRET' },
      workingDir: '/SECRET',
      sysctls: { 'net.core.somaxconn': 'SECRET' },
      livenessProbe: { check: { case: 'exec', value: { command: ['SECRET'] } } },
      labels: { app: 'web' },
      placement: { zones: ['a'] },
      replicas: 3,
    });
    const redacted = redactSpec(spec);
    expect(redacted).toMatchObject({
      ...{ image: 'shop/web:2', command: ['redacted'], labels: { app: 'web' }, replicas: 3 },
      ...{ placement: { zones: ['a'] }, sysctls: { 'net.core.somaxconn': 'redacted' } },
    });
    const bytes = toBinary(WorkloadSpecSchema, redacted);
    expect(Buffer.from(bytes).includes('SECRET')).toBe(false);
    expect(redactSpec(fromBinary(WorkloadSpecSchema, bytes))).toEqual(redacted);
  });

  it('removes addresses of nodes, and output and addresses of replicas', () => {
    const node = Object.assign(clone(NodeRecordSchema, node1), { instanceId: 'SECRET' });
    Object.assign(node.hello ?? {}, { agentAddress: 'SECRET', bootId: 'SECRET' });
    const replica = create(ReplicaRecordSchema, {
      ...{ id: 'web-1', nodeId: 'n1', reason: 'SECRET', containerId: 'SECRET' },
      ...{ lastLines: ['SECRET'], endpoints: [{ ip: 'SECRET' }], stopReason: 'SECRET' },
    });
    const bytes = [
      toBinary(NodeRecordSchema, redactNode(node)),
      toBinary(ReplicaRecordSchema, redactReplica(replica)),
    ];
    expect(Buffer.concat(bytes).includes('SECRET')).toBe(false);
  });
});
