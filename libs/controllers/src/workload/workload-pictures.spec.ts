import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import {
  ContainerFactsSchema,
  EndpointSchema,
  ImagePullStatusSchema,
  ReplicaStatusSchema,
  WorkloadSchema,
  skipLength,
} from '@cloudless/api';
import { VersionRecordSchema } from '@cloudless/api/store';
import { toReplicaKeyId, toVersionKeyId } from '@cloudless/cluster-state';
import { TestBed } from '../testing/test-bed.js';
import { WorkloadPresenter } from './workload-presenter.js';

const NODES = ['node-1', 'node-2'];
const REPLICAS = 5;

let bed: TestBed;
let presenter: WorkloadPresenter;

async function open(options: { readonly maxPictureBytes?: number } = {}): Promise<void> {
  bed = await TestBed.open({ nodes: NODES });
  presenter = bed.use(new WorkloadPresenter(bed.state, bed.nodes, bed, options));
  await bed.createWorkload({ replicas: REPLICAS, labels: { app: 'web' } });
  await bed.addReplicas(REPLICAS);
}

/** Expects that the pictures of all workloads and replicas equal messages that are built anew. */
function expectFresh(): void {
  const view = bed.state.view();
  for (const { value } of view.workloads())
    for (const full of [true, false])
      expect(fromBinary(WorkloadSchema, skipLength(presenter.encode(value, full)))).toEqual(
        presenter.present(value, full),
      );
  for (const { value } of view.workloads())
    expect(
      fromBinary(
        WorkloadSchema,
        toBinary(WorkloadSchema, presenter.presentWithEncodedReplicas(value)),
      ),
    ).toEqual(presenter.present(value, true));
  for (const { value } of view.replicas())
    expect(fromBinary(ReplicaStatusSchema, skipLength(presenter.encodeReplica(value)))).toEqual(
      presenter.presentReplica(value),
    );
}

const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, index) => first + index);

const arbText = fc.constantFrom('', 'crashed', 'ü', 'a long reason '.repeat(30));
const arbTime = fc.option(fc.nat(4_000_000_000).map(timestampFromMs), { nil: undefined });
const arbReplicaFields = fc.record({
  nodeId: fc.constantFrom('', ...NODES),
  phase: fc.integer({ min: 0, max: 7 }),
  ready: fc.boolean(),
  lost: fc.boolean(),
  desiredRunning: fc.boolean(),
  reason: arbText,
  slot: fc.nat(300),
  restarts: fc.nat(),
  failedStarts: fc.option(fc.nat(3), { nil: undefined }),
  readySince: arbTime,
  lastExitCode: fc.option(fc.integer({ min: -1, max: 255 }), { nil: undefined }),
  lastEndReason: arbText,
  lastLines: fc.array(arbText, { maxLength: 3 }),
  endpoints: fc.array(
    fc.record({ portName: arbText, ip: fc.constantFrom('10.0.0.1', '::1'), port: fc.nat(65_535) }),
    { maxLength: 2 },
  ),
  container: fc.option(
    fc.record({
      pid: fc.nat(),
      startedAt: arbTime,
      runtime: arbText,
      ip: arbText,
      runtimeId: arbText,
      imageDigest: arbText,
    }),
    { nil: undefined },
  ),
  imagePull: fc.option(
    fc.record({
      image: arbText,
      phase: fc.integer({ min: 0, max: 2 }),
      startedAt: arbTime,
      took: fc.option(fc.record({ seconds: fc.bigInt(0n, 900n), nanos: fc.nat(999_999_999) }), {
        nil: undefined,
      }),
      sizeBytes: fc.bigInt(0n, 2n ** 40n),
      reason: arbText,
    }),
    { nil: undefined },
  ),
  nextStartAt: arbTime,
});
/** Fields of a replica that counts its failed starts among its restarts. */
const arbFields = arbReplicaFields.map((fields) => ({
  ...fields,
  restarts: Math.max(fields.restarts, fields.failedStarts ?? 0),
}));
const arbStep = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.tuple(
      fc.constant('replica' as const),
      fc.integer({ min: 1, max: REPLICAS }),
      arbFields,
    ),
  },
  fc.tuple(fc.constant('deleteReplica' as const), fc.integer({ min: 1, max: REPLICAS })),
  fc.tuple(fc.constant('control' as const), fc.integer({ min: 0, max: 2 }), arbText),
  fc.tuple(fc.constant('version' as const), arbText),
  fc.tuple(fc.constant('spec' as const), fc.nat(9), fc.boolean()),
  fc.tuple(fc.constant('zone' as const), fc.constantFrom(...NODES), fc.constantFrom('a', 'b')),
  fc.tuple(fc.constant('disconnect' as const), fc.constantFrom(...NODES)),
  fc.tuple(fc.constant('connect' as const), fc.constantFrom(...NODES)),
);

async function apply(step: typeof arbStep extends fc.Arbitrary<infer Step> ? Step : never) {
  const view = bed.state.view();
  switch (step[0]) {
    case 'replica':
      if (view.replica(`web-${step[1]}`) !== undefined)
        await bed.changeReplica(`web-${step[1]}`, step[2] as never);
      return;
    case 'deleteReplica':
      await bed.state.commit(
        bed.state.transaction().delete('replica', toReplicaKeyId('web', BigInt(step[1]))),
      );
      return;
    case 'control':
      return bed.changeControl({ activeVersion: step[1], rolloutReason: step[2] });
    case 'version':
      await bed.state.commit(
        bed.state
          .transaction()
          .put(
            'version',
            toVersionKeyId('web', 1),
            create(VersionRecordSchema, { version: 1, cause: step[1] }),
          ),
      );
      return;
    case 'spec':
      return bed.updateWorkload({ replicas: step[1], ...(step[2] ? { args: ['new'] } : {}) });
    case 'zone':
      return bed.changeNode(step[1], { zone: step[2] });
    case 'disconnect':
      return bed.disconnect(step[1]);
    case 'connect':
      return bed.connect(step[1]);
  }
}

describe('pictures of workloads', () => {
  it.each([
    { name: 'enough memory', maxPictureBytes: 1_000_000 },
    { name: 'memory for some parts', maxPictureBytes: 600 },
    { name: 'memory for no picture', maxPictureBytes: 10 },
  ])('equal messages that are built anew, after any changes, with $name', async (options) => {
    await fc.assert(
      fc.asyncProperty(fc.array(arbStep, { maxLength: 12 }), async (steps) => {
        await open(options);
        await bed.createWorkload({ mode: 1 }, 'all-nodes');
        await bed.createWorkload({ replicas: 0 }, 'other');
        expectFresh();
        for (const step of steps) {
          await apply(step);
          expectFresh();
        }
        await bed.close();
      }),
      { numRuns: 20 },
    );
  });

  it.each([
    { schema: ReplicaStatusSchema, written: [...range(1, 22), 30] },
    { schema: EndpointSchema, written: range(1, 3) },
    { schema: ImagePullStatusSchema, written: range(1, 6) },
    { schema: ContainerFactsSchema, written: range(1, 6) },
  ])(
    'write every field of $schema.name: add a new one to replica-encoder.ts',
    ({ schema, written }) => {
      expect(schema.fields.map(({ number }) => number).sort((a, b) => a - b)).toEqual(written);
    },
  );

  it('are built once for any number of readers, and again only for the workload that changed', async () => {
    await open();
    await bed.createWorkload({ replicas: 0 }, 'other');
    const read = (uid: string): Uint8Array => presenter.encode(bed.workload(uid), true);
    const first = read('web');
    read('other');
    for (let watcher = 0; watcher < 50; watcher += 1) expect(read('web')).toBe(first);
    const listed = presenter.encode(bed.workload('web'), false);
    expect(presenter.encode(bed.workload('web'), false)).toBe(listed);
    expect(presenter.pictureFigures).toMatchObject({ builtWorkloads: 2, builtReplicas: REPLICAS });
    await bed.changeReplica('web-1', { restarts: 1 });
    for (let watcher = 0; watcher < 50; watcher += 1) for (const uid of ['web', 'other']) read(uid);
    expect(presenter.pictureFigures).toMatchObject({
      builtWorkloads: 3,
      builtReplicas: 2 * REPLICAS,
    });
    await bed.close();
  });

  it('keep no more bytes than the limit; those that were read last stay', async () => {
    await open({ maxPictureBytes: 900 });
    const uids = ['a', 'b', 'c', 'd', 'e', 'f'];
    for (const uid of uids) await bed.createWorkload({ replicas: 0 }, uid);
    const read = (uid: string): unknown => presenter.encode(bed.workload(uid), true);
    for (const uid of [...uids, 'web', 'f']) {
      read(uid);
      expect(presenter.pictureFigures.keptBytes).toBeLessThanOrEqual(900);
    }
    const { builtWorkloads } = presenter.pictureFigures;
    read('f');
    expect(presenter.pictureFigures.builtWorkloads).toBe(builtWorkloads);
    read('a');
    expect(presenter.pictureFigures.builtWorkloads).toBe(builtWorkloads + 1);
    await bed.close();
  });
});
