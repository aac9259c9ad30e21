import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { TimestampSchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { ContainerFactsSchema, type ContainerFacts } from '@cloudless/api';
import { shareBigint, shareContainer, shareTime, shareTimeFromMs } from './shared-parts.js';

const newerField = new BinaryWriter().tag(999, WireType.Varint).uint32(1).finish();

describe('shareBigint', () => {
  it('returns an equal number for any 64-bit number', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }), (value) => {
        expect(shareBigint(value)).toBe(value);
      }),
    );
  });
});

describe('shareTime', () => {
  it('returns an equal time, for any time', () => {
    const arbTime = fc.record({
      seconds: fc.bigInt({ min: -(2n ** 40n), max: 2n ** 60n }),
      nanos: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
    });
    fc.assert(
      fc.property(arbTime, (fields) => {
        const time = create(TimestampSchema, fields);
        expect(shareTime(time)).toStrictEqual(time);
      }),
    );
  });

  it('returns the same object for equal times', () => {
    const shared = shareTime(timestampFromMs(1_700_000_000_123));
    expect(shareTime(timestampFromMs(1_700_000_000_123))).toBe(shared);
  });

  it('gives the same object to those who have the time in milliseconds', () => {
    for (const ms of [1_700_000_000_123, 1_700_000_000_123, 1_700_000_000_124]) {
      expect(shareTimeFromMs(ms)).toBe(shareTime(timestampFromMs(ms)));
    }
  });

  it('keeps a time with fields that a newer version wrote, and nanoseconds out of range', () => {
    const newer = fromBinary(TimestampSchema, newerField);
    expect(shareTime(newer)).toBe(newer);
    const invalid = create(TimestampSchema, { nanos: 2 ** 40 });
    expect(shareTime(invalid)).toBe(invalid);
  });
});

describe('shareContainer', () => {
  const facts: ContainerFacts = create(ContainerFactsSchema, {
    pid: 42,
    startedAt: timestampFromMs(5_000),
    runtime: 'process',
    ip: '10.0.0.1',
    runtimeId: 'c-1',
    imageDigest: 'sha256:1',
  });

  it.each([
    { name: 'all fields', of: facts },
    { name: 'no start time', of: create(ContainerFactsSchema, { runtime: 'cri' }) },
    { name: 'a long text', of: { ...facts, imageDigest: 'x'.repeat(1_000) } },
    { name: 'no field', of: create(ContainerFactsSchema) },
  ])('returns equal facts with $name, in the order of decoded ones', ({ of }) => {
    const shared = shareContainer(of);
    expect(shared).toStrictEqual(of);
    const decoded = fromBinary(ContainerFactsSchema, toBinary(ContainerFactsSchema, of));
    expect(Object.keys(shared)).toEqual(Object.keys(decoded));
  });

  it('knows every field of the schema', () => {
    const names = ContainerFactsSchema.fields.map(({ localName }) => localName);
    expect(Object.keys(shareContainer(facts)).sort()).toEqual(['$typeName', ...names].sort());
  });

  it('shares the time of equal starts', () => {
    const other = { ...facts, pid: 43, startedAt: timestampFromMs(5_000) };
    expect(shareContainer(other).startedAt).toBe(shareContainer(facts).startedAt);
  });

  it('keeps facts with fields that a newer version wrote', () => {
    const newer = fromBinary(ContainerFactsSchema, newerField);
    expect(shareContainer(newer)).toBe(newer);
  });
});
