import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { DurationSchema, TimestampSchema } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { AgentMessageSchema } from '../gen/cloudless/api/session_pb.js';
import { decodeMessage } from './message-decoder.js';

const arbText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.string({ maxLength: 200 }),
);
const arbInt = fc.oneof(fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }), fc.nat());
const arbInt64 = fc.oneof(
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.bigInt({ min: 0n, max: 2n ** 50n }),
  fc.constantFrom(2n ** 32n, 2n ** 49n - 1n, 2n ** 49n),
);
const arbTime = fc
  .record({ seconds: arbInt64, nanos: arbInt })
  .map((init) => create(TimestampSchema, init));
const arbDuration = fc
  .record({ seconds: arbInt64, nanos: arbInt })
  .map((init) => create(DurationSchema, init));
const arbReport = fc.record(
  {
    replicaId: arbText,
    workloadUid: arbText,
    orderRevision: arbInt64,
    phase: fc.integer({ min: 0, max: 40 }),
    ready: fc.boolean(),
    reason: arbText,
    containerId: arbText,
    restarts: arbInt,
    endpoints: fc.array(fc.record({ portName: arbText, ip: arbText, port: arbInt }), {
      maxLength: 3,
    }),
    lastExitCode: arbInt,
    startedAt: arbTime,
    earlierContainerIds: fc.array(arbText, { maxLength: 3 }),
    lastEndReason: arbText,
    forgotten: fc.boolean(),
    lastLines: fc.array(arbText, { maxLength: 3 }),
    imagePull: fc.record(
      {
        image: arbText,
        phase: fc.integer({ min: 0, max: 5 }),
        startedAt: arbTime,
        took: arbDuration,
        sizeBytes: arbInt64,
        reason: arbText,
      },
      { requiredKeys: [] },
    ),
    nextStartAt: arbTime,
    failedStarts: arbInt,
    container: fc.record(
      {
        pid: arbInt,
        startedAt: arbTime,
        runtime: arbText,
        ip: arbText,
        runtimeId: arbText,
        imageDigest: arbText,
      },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: [] },
);
const arbInventory = fc.record({
  replicas: fc.array(arbReport, { maxLength: 4 }),
  last: fc.boolean(),
});
const arbUsage = fc.record(
  {
    usage: fc.record(
      { cpuMillis: arbInt, memoryBytes: arbInt64, storageBytes: arbInt64 },
      { requiredKeys: [] },
    ),
    conditions: fc.array(
      fc.record({ type: fc.integer({ min: 0, max: 40 }), status: fc.boolean(), reason: arbText }),
      { maxLength: 3 },
    ),
    replicas: fc.array(
      fc.record(
        { replicaId: arbText, cpuMillis: arbInt, memoryBytes: arbInt64 },
        { requiredKeys: [] },
      ),
      { maxLength: 3 },
    ),
  },
  { requiredKeys: [] },
);
/** A report, a part of an inventory or a usage, encoded. */
const arbEncoded = fc.oneof(
  arbReport.map((value) => encode('report', value)),
  arbInventory.map((value) => encode('inventory', value)),
  arbUsage.map((value) => encode('usage', value)),
);

const encode = (kind: 'report' | 'inventory' | 'usage', value: object): Uint8Array =>
  toBinary(
    AgentMessageSchema,
    create(AgentMessageSchema, { message: { case: kind, value: value as never } }),
  );

/** A container with two times, each of which sets another field. */
const NESTED_TWICE = [0xf2, 1, 8, 0x12, 2, 0x08, 5, 0x12, 2, 0x10, 7];

/** Returns the message or the text of the error. */
function attempt(decode: () => unknown): unknown {
  try {
    return decode();
  } catch (reason) {
    return String(reason);
  }
}
const expectAlike = (bytes: Uint8Array): void => {
  const expected = attempt(() => fromBinary(AgentMessageSchema, bytes));
  expect(attempt(() => decodeMessage(AgentMessageSchema, bytes))).toEqual(expected);
  const behindOthers = Buffer.concat([Buffer.from([0x1a, 0, 0x1a]), bytes]);
  expect(attempt(() => decodeMessage(AgentMessageSchema, behindOthers, 3))).toEqual(expected);
};

describe('decodeMessage', () => {
  it('decodes every report, inventory and usage as the generic decoder does', () => {
    fc.assert(fc.property(arbEncoded, expectAlike));
  });

  it('decodes a message that is cut off, changed or extended as the generic decoder does', () => {
    fc.assert(
      fc.property(
        arbEncoded,
        fc.nat(),
        fc.integer({ min: 0, max: 255 }),
        fc.uint8Array({ maxLength: 6 }),
        (bytes, position, byte, more) => {
          const at = position % (bytes.length + 1);
          expectAlike(bytes.subarray(0, at));
          expectAlike(Uint8Array.from([...bytes.subarray(0, at), byte, ...bytes.subarray(at + 1)]));
          expectAlike(Uint8Array.from([...bytes, ...more]));
        },
      ),
      { numRuns: 500 },
    );
  });

  it.each([
    { name: 'an unknown field', fields: [0xa0, 0x06, 0x01] },
    { name: 'a field of another wire type', fields: [0x08, 0x01] },
    { name: 'two times that are merged', fields: [0x5a, 2, 0x08, 5, 0x5a, 2, 0x10, 7] },
    { name: 'a time with an unknown field', fields: [0x5a, 2, 0x18, 5] },
    { name: 'two times of a container that are merged', fields: NESTED_TWICE },
    { name: 'an endpoint with an unknown field', fields: [0x4a, 2, 0x38, 5] },
    { name: 'a container with an unknown field', fields: [0xf2, 1, 2, 0x38, 5] },
    { name: 'a pull with an unknown field', fields: [0x82, 1, 2, 0x38, 5] },
    { name: 'a container that is longer than the report', fields: [0xf2, 1, 9, 0x08, 5] },
    { name: 'a text that is longer than its container', fields: [0xf2, 1, 2, 0x22, 1, 0x6f] },
    { name: 'a byte order mark', fields: [0x0a, 4, 0xef, 0xbb, 0xbf, 0x41] },
    { name: 'a number of more than 32 bits', fields: [0x20, 0x81, 0x80, 0x80, 0x80, 0x70] },
    { name: 'a number of ten bytes', fields: [0x40, ...Array<number>(9).fill(0xff), 1] },
    { name: 'two pulls that are merged', fields: [0x82, 1, 2, 0x08, 1, 0x82, 1, 2, 0x10, 1] },
    { name: 'two next starts that are merged', fields: [0x8a, 1, 2, 8, 5, 0x8a, 1, 2, 0x10, 7] },
    { name: 'a text that is not UTF-8', fields: [0x0a, 1, 0xff] },
    { name: 'a tag of too many bytes', fields: [0x8a, 0x80, 0x80, 0x80, 0x80, 0x00, 0x00] },
  ])('decodes a report with $name as the generic decoder does', ({ fields }) => {
    expectAlike(Uint8Array.from([0x1a, fields.length, ...fields]));
  });

  it.each([
    { name: 'an unknown field', fields: [0x18, 1] },
    { name: 'a field of another wire type', fields: [0x12, 1, 0x01] },
    { name: 'a report with an unknown field', fields: [0x0a, 3, 0xa0, 0x06, 0x01, 0x10, 1] },
    { name: 'a report that is longer than the inventory', fields: [0x0a, 9, 0x0a, 1, 0x41] },
    { name: 'two values for last', fields: [0x10, 1, 0x10, 0] },
  ])('decodes an inventory with $name as the generic decoder does', ({ fields }) => {
    expectAlike(Uint8Array.from([0x12, fields.length, ...fields]));
  });

  it.each([
    { name: 'an unknown field', fields: [0x20, 1] },
    { name: 'two measurements that are merged', fields: [0x0a, 2, 0x08, 5, 0x0a, 2, 0x10, 7] },
    { name: 'measurements with an unknown field', fields: [0x0a, 2, 0x38, 5] },
    { name: 'a condition with an unknown field', fields: [0x12, 2, 0x38, 5] },
    { name: 'a replica with an unknown field', fields: [0x1a, 2, 0x38, 5] },
    { name: 'a replica that is longer than the usage', fields: [0x1a, 9, 0x0a, 1, 0x41] },
  ])('decodes a usage with $name as the generic decoder does', ({ fields }) => {
    expectAlike(Uint8Array.from([0x22, fields.length, ...fields]));
  });

  it('decodes other messages', () => {
    const goodbye = create(AgentMessageSchema, {
      message: { case: 'goodbye', value: { reason: 'upgrade' } },
    });
    expect(decodeMessage(AgentMessageSchema, toBinary(AgentMessageSchema, goodbye))).toEqual(
      goodbye,
    );
  });
});
