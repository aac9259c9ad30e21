import { create, equals, fromBinary, toBinary, type DescMessage } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import fc from 'fast-check';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import {
  RECORD_KINDS,
  decodeRecord,
  encodeRecord,
  toEventId,
  toKey,
  parseKey,
  recordSchemas,
  toReplicaKeyId,
  toVersionKeyId,
} from './records.js';

describe('record keys', () => {
  it.each([
    { kind: 'workload', id: 'u1', key: '/workload/u1' },
    { kind: 'name', id: 'default/web', key: '/name/default/web' },
    { kind: 'replica', id: toReplicaKeyId('u1', 12n), key: '/replica/u1/0000000012' },
    { kind: 'version', id: toVersionKeyId('u1', 3), key: '/version/u1/0000000003' },
    { kind: 'event', id: toEventId(2n, 7), key: '/event/0000000002-0000000007' },
  ] as const)('are built and parsed: $key', ({ kind, id, key }) => {
    expect(toKey(kind, id)).toBe(key);
    expect(parseKey(key)).toEqual({ kind, id });
  });

  it.each(['/', '/replica', '/quota/a', '/__proto__/a', '/toString/a', ''])(
    'are not parsed when the kind is unknown or the id is missing: %p',
    (key) => {
      expect(parseKey(key)).toBeUndefined();
    },
  );

  it('are parsed back for any id', () => {
    fc.assert(
      fc.property(fc.constantFrom(...RECORD_KINDS), fc.string({ unit: 'grapheme' }), (kind, id) =>
        expect(parseKey(toKey(kind, id))).toEqual({ kind, id }),
      ),
    );
  });

  it('of replicas, versions and events sort by their numbers', () => {
    const number = fc.integer({ min: 0, max: 2 ** 31 });
    fc.assert(
      fc.property(number, number, number, number, (a, b, c, d) => {
        expect(toReplicaKeyId('u', BigInt(a)) < toReplicaKeyId('u', BigInt(b))).toBe(a < b);
        expect(toVersionKeyId('u', a) < toVersionKeyId('u', b)).toBe(a < b);
        expect(toEventId(BigInt(a), c) < toEventId(BigInt(b), d)).toBe(a < b || (a === b && c < d));
      }),
    );
  });
});

describe('record codecs', () => {
  const text = fc.string({ maxLength: 5 });
  const int = fc.integer({ min: 0, max: 2 ** 31 - 1 });
  const replica = fc
    .record({
      id: text,
      uid: text,
      sequence: fc.bigInt({ min: 0n, max: 2n ** 62n }),
      slot: int,
      nodeId: text,
      desiredRunning: fc.boolean(),
      phase: fc.integer({ min: 0, max: 7 }),
      endpoints: fc.array(fc.record({ portName: text, ip: text, port: int }), { maxLength: 3 }),
      earlierContainerIds: fc.array(text, { maxLength: 3 }),
      lost: fc.boolean(),
    })
    .map((init) => create(ReplicaRecordSchema, init));

  it('decode every encoded replica', () => {
    fc.assert(
      fc.property(replica, (record) => {
        const read = decodeRecord('replica', record.id, encodeRecord('replica', record).bytes);
        expect(equals(ReplicaRecordSchema, read, record)).toBe(true);
      }),
    );
  });

  it.each(RECORD_KINDS.map((kind) => ({ kind })))(
    'keep unknown fields of a $kind record',
    ({ kind }) => {
      const newer = new BinaryWriter()
        .tag(999, WireType.LengthDelimited)
        .string('from the future')
        .finish();
      const schema: DescMessage = recordSchemas[kind];
      expect(encodeRecord(kind, fromBinary(schema, newer) as never).bytes).toEqual(newer);
      expect(toBinary(schema, decodeRecord(kind, 'x', newer))).toEqual(newer);
    },
  );

  it('reject invalid bytes with an error that names the key and has the cause', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        try {
          decodeRecord('node', 'edge-1', bytes);
        } catch (reason) {
          expect(reason).toMatchObject({
            kind: 'internal',
            message: 'the record at /node/edge-1 cannot be read',
          });
          expect((reason as Error).cause).toHaveProperty('message');
        }
      }),
    );
    expect(() => decodeRecord('node', 'edge-1', Uint8Array.of(10, 200))).toThrow(
      'the record at /node/edge-1 cannot be read',
    );
  });
});

describe('decoded replicas', () => {
  it('share equal times and empty lists, so that a replica takes little memory', () => {
    const decode = (sequence: bigint): ReplicaRecord => {
      const { bytes } = encodeRecord(
        'replica',
        create(ReplicaRecordSchema, {
          id: `u-${sequence}`,
          uid: 'u',
          sequence,
          createdAt: { seconds: 1_700_000_000n, nanos: 5 },
        }),
      );
      return decodeRecord('replica', `u/${sequence}`, bytes);
    };
    const [first, second] = [decode(1n), decode(2n)];
    expect(first.createdAt).toBe(second.createdAt);
    expect(first.lastLines).toBe(second.lastLines);
    expect(() => first.lastLines.push('')).toThrow(TypeError);
  });
});
