import fc from 'fast-check';
import { clone, create, equals, fromBinary, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ControlRecordSchema, type ControlRecord } from '@cloudless/api/store';
import { copyControl, isSameControl } from './control-copy.js';

const optional = <Value>(arb: fc.Arbitrary<Value>) => fc.option(arb, { nil: undefined });
const arbTime = fc.integer({ min: 0, max: 2 ** 40 }).map((ms) => timestampFromMs(ms));
const arbControl: fc.Arbitrary<ControlRecord> = fc
  .record({
    uid: fc.string({ maxLength: 4 }),
    nextSequence: fc.bigInt({ min: 0n, max: 3n }),
    activeVersion: fc.nat(2),
    backoff: fc.dictionary(
      fc.nat(2).map(String),
      fc.record({ failures: fc.nat(2), notBefore: optional(arbTime) }),
      { maxKeys: 2 },
    ),
    eviction: optional(
      fc.record({ replicaIds: fc.array(fc.string({ maxLength: 2 })), until: optional(arbTime) }),
    ),
    unknown: optional(fc.nat(127)),
  })
  .map(({ unknown, eviction, ...fields }) => {
    const record = create(ControlRecordSchema, {
      ...fields,
      ...(eviction === undefined ? {} : { eviction }),
    } as never);
    if (unknown !== undefined)
      record.$unknown = [{ no: 500, wireType: 0, data: Uint8Array.of(unknown) }];
    return record;
  });

describe('copyControl', () => {
  it('returns what clone of protobuf returns, of created and of decoded records', () => {
    fc.assert(
      fc.property(arbControl, (created) => {
        const decoded = fromBinary(ControlRecordSchema, toBinary(ControlRecordSchema, created));
        for (const record of [created, decoded])
          expect(copyControl(record)).toStrictEqual(clone(ControlRecordSchema, record));
      }),
    );
  });

  it('shares no object with the record', () => {
    const record = create(ControlRecordSchema, {
      backoff: { 1: { failures: 1, notBefore: timestampFromMs(5) } },
      eviction: { replicaIds: ['a'] },
    } as never);
    const before = clone(ControlRecordSchema, record);
    const copy = copyControl(record);
    for (const slot of Object.values(copy.backoff)) if (slot.notBefore) slot.notBefore.nanos = 7;
    copy.eviction?.replicaIds.push('b');
    copy.backoff = {};
    expect(record).toStrictEqual(before);
  });
});

describe('isSameControl', () => {
  it('compares as equals of protobuf does', () => {
    fc.assert(
      fc.property(arbControl, arbControl, (a, b) => {
        expect(isSameControl(a, b)).toBe(equals(ControlRecordSchema, a, b));
        expect(isSameControl(a, copyControl(a))).toBe(true);
      }),
    );
  });
});
