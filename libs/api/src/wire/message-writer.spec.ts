import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import {
  GetWorkloadRequestSchema,
  MessageWriter,
  ReplicaStatusSchema,
  WorkloadSchema,
  createEncodedMessage,
  createWithEncodedField,
  isBinaryCall,
  ListWorkloadsResponseSchema,
  skipLength,
  type ReplicaStatus,
} from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';

/** Writes the fields of a replica that together use every method of the writer. */
function writeSome(writer: MessageWriter, replica: ReplicaStatus): void {
  writer.string(1, replica.id);
  writer.int32(2, replica.slot);
  writer.int32(4, replica.phase);
  writer.bool(5, replica.ready);
  for (const { portName, ip, port } of replica.endpoints) {
    const endpoint = writer.begin(11);
    writer.string(1, portName);
    writer.string(2, ip);
    writer.int32(3, port);
    writer.end(endpoint);
  }
  writer.timestamp(12, replica.createdAt);
  if (replica.lastExitCode !== undefined) writer.presentInt32(14, replica.lastExitCode);
  for (const line of replica.lastLines) writer.element(18, line);
  if (replica.imagePull !== undefined) {
    const pull = writer.begin(19);
    writer.int64(5, replica.imagePull.sizeBytes);
    writer.end(pull);
  }
  writer.unknown(replica.$unknown);
}

/** A replica with only the fields of {@link writeSome}. */
const arbReplica = arbitraryMessage(ReplicaStatusSchema).map(
  ({ id, slot, phase, ready, endpoints, createdAt, lastExitCode, lastLines, imagePull }) =>
    create(ReplicaStatusSchema, {
      ...{ id, slot, phase, ready, endpoints, lastLines },
      ...(createdAt === undefined ? {} : { createdAt }),
      ...(lastExitCode === undefined ? {} : { lastExitCode }),
      ...(imagePull === undefined ? {} : { imagePull: { sizeBytes: imagePull.sizeBytes } }),
    }),
);
const arbText = fc.oneof(
  fc.string({ maxLength: 400 }),
  fc.string({ unit: 'binary', maxLength: 200 }),
  fc.constantFrom('', 'x'.repeat(127), 'x'.repeat(128), 'é'.repeat(64), 'x'.repeat(20_000)),
);

describe('MessageWriter', () => {
  it('writes the bytes of toBinary for any values, one message after the other', () => {
    const writer = new MessageWriter();
    fc.assert(
      fc.property(arbReplica, arbText, fc.integer(), (replica, text, exitCode) => {
        Object.assign(replica, { id: text, lastLines: ['', text], lastExitCode: exitCode });
        writeSome(writer, replica);
        const bytes = toBinary(ReplicaStatusSchema, replica);
        expect(Buffer.compare(writer.finish(), bytes)).toBe(0);
      }),
    );
  });

  it.each([
    0n,
    1n,
    -1n,
    127n,
    128n,
    2n ** 31n,
    2n ** 53n - 1n,
    2n ** 53n,
    2n ** 63n - 1n,
    -(2n ** 63n),
  ])('writes the int64 %p as toBinary does', (generation) => {
    const writer = new MessageWriter();
    writer.int64(6, generation);
    expect(Buffer.from(writer.finish())).toEqual(
      Buffer.from(toBinary(WorkloadSchema, create(WorkloadSchema, { generation }))),
    );
  });

  it('writes times in milliseconds as timestampFromMs converts them', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 4_000_000_000_000 }), (ms) => {
        const writer = new MessageWriter();
        writer.timestampMs(7, ms);
        const createdAt = timestampFromMs(ms);
        expect(Buffer.from(writer.finish())).toEqual(
          Buffer.from(toBinary(WorkloadSchema, create(WorkloadSchema, { createdAt }))),
        );
      }),
    );
  });
});

describe('createEncodedMessage', () => {
  it('is encoded as exactly the given bytes, also for no bytes', () => {
    fc.assert(
      fc.property(arbReplica, (replica) => {
        const bytes = toBinary(ReplicaStatusSchema, replica);
        const encoded = createEncodedMessage(ReplicaStatusSchema, bytes);
        expect(toBinary(ReplicaStatusSchema, encoded)).toEqual(bytes);
      }),
    );
    const empty = createEncodedMessage(GetWorkloadRequestSchema, new Uint8Array());
    expect(toBinary(GetWorkloadRequestSchema, empty)).toHaveLength(0);
  });
});

describe('createWithEncodedField', () => {
  it('has the encoded elements beside the fields that are set later', () => {
    const workloads = ['web', 'x'.repeat(300)].map((name) => create(WorkloadSchema, { name }));
    const writer = new MessageWriter();
    const elements = workloads.map((workload) => {
      writer.encoded(1, toBinary(WorkloadSchema, workload));
      return writer.finish().subarray(1);
    });
    const message = createWithEncodedField(ListWorkloadsResponseSchema, 1, elements);
    message.revision = 7n;
    const decoded = fromBinary(
      ListWorkloadsResponseSchema,
      toBinary(ListWorkloadsResponseSchema, message),
    );
    expect(decoded).toEqual(create(ListWorkloadsResponseSchema, { workloads, revision: 7n }));
    expect(elements.map((bytes) => skipLength(bytes).byteLength)).toEqual([5, 303]);
  });
});

describe('isBinaryCall', () => {
  it.each([
    ['application/grpc', true],
    ['application/grpc+proto', true],
    ['application/grpc-web+proto', true],
    ['application/grpc-web', true],
    ['application/proto', true],
    ['application/connect+proto', true],
    ['application/grpc+json', false],
    ['application/grpc-web+json', false],
    ['application/json', false],
    ['application/json; charset=utf-8', false],
    ['application/connect+json', false],
    ['', false],
  ])('is for the content type "%s": %p', (type, isBinary) => {
    expect(isBinaryCall(new Headers(type === '' ? {} : { 'content-type': type }))).toBe(isBinary);
  });
});
