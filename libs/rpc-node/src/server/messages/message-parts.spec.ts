import { create, fromBinary, fromJsonString, toBinary, toJsonString } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { CreateWorkloadRequestSchema, TunnelFrameSchema } from '@cloudless/api';
import { countBinaryParts, countJsonParts } from './message-parts.js';

const LIMIT = 20_000;
const schema = CreateWorkloadRequestSchema;
/** Returns `count` copies of the bytes. */
const repeat = (unit: readonly number[], count: number): Buffer =>
  Buffer.alloc(unit.length * count, Buffer.from(unit));
/** Encodes field 3 (`spec`) of the request, with a two-byte length. */
const encodeSpec = (body: Buffer): Buffer =>
  Buffer.concat([Buffer.from([0x1a, (body.length & 127) | 128, body.length >> 7]), body]);

describe('countBinaryParts', () => {
  it.each([
    { name: 'an empty message', bytes: Buffer.alloc(0), parts: 0 },
    { name: '10 unknown fields', bytes: repeat([0x78, 1], 10), parts: 10 },
    {
      name: 'a field with a list of 100 messages',
      bytes: encodeSpec(repeat([0x32, 0], 100)),
      parts: 101,
    },
    {
      name: 'a field with a list of 100 strings',
      bytes: encodeSpec(repeat([0x12, 0], 100)),
      parts: 101,
    },
    {
      name: 'a field with a map of 100 entries',
      bytes: encodeSpec(repeat([0x22, 0], 100)),
      parts: 101,
    },
    {
      name: 'a map entry that repeats its key 32 times',
      bytes: encodeSpec(Buffer.concat([Buffer.from([0x22, 64]), repeat([0x0a, 0], 32)])),
      parts: 2 + 2 + 32,
    },
    {
      name: 'a text of 64 characters, at 32 characters each',
      bytes: Buffer.concat([Buffer.from([0x12, 64]), Buffer.alloc(64, 'a')]),
      parts: 3,
    },
    { name: '10 groups', bytes: repeat([0x7b, 0x7c], 10), parts: 10 },
  ])('counts $parts parts in $name', ({ bytes, parts }) => {
    expect(countBinaryParts(schema, bytes, LIMIT)).toBe(parts);
  });

  it('counts the content of a bytes field less than the same content in other fields', () => {
    const bytes = toBinary(
      TunnelFrameSchema,
      create(TunnelFrameSchema, {
        frame: { case: 'log', value: { line: Buffer.alloc(100_000, 0x78) as never } },
      }),
    );
    expect(countBinaryParts(TunnelFrameSchema, bytes, LIMIT)).toBeLessThan(5_000);
  });

  it('stops counting at the limit, at malformed bytes and at too deep groups', () => {
    expect(countBinaryParts(schema, repeat([0x78, 1], 1_000_000), 100)).toBe(101);
    expect(countBinaryParts(schema, Buffer.from([0x1a, 0x7f, 0x61]), LIMIT)).toBeLessThan(4);
    expect(countBinaryParts(schema, Buffer.alloc(1_000_000, 0x7b), LIMIT)).toBeLessThan(200);
  });

  it('accepts any bytes, and counts at least the unknown fields that the parser finds', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
        const parts = countBinaryParts(schema, bytes, LIMIT);
        expect(parts).toBeGreaterThanOrEqual(0);
        const unknown = parseOrZero(() => fromBinary(schema, bytes).$unknown?.length ?? 0);
        expect(parts).toBeGreaterThanOrEqual(unknown);
      }),
      { numRuns: 500 },
    );
  });
});

describe('countJsonParts', () => {
  it.each([
    { text: '{}', parts: 1 },
    { text: '{"spec":{"ports":[{},{}]}}', parts: 9 },
    { text: `{"name":"${'\\"'.repeat(10)}[[["}`, parts: 3 },
    { text: `{"updateMask":"${'a,'.repeat(40)}a"}`, parts: 14 },
    { text: '[[[[', parts: 4 },
    { text: '{"a', parts: 2 },
  ])('counts $parts parts in $text', ({ text, parts }) => {
    expect(countJsonParts(Buffer.from(text), LIMIT)).toBe(parts);
  });

  it('accepts any bytes, and returns at most the limit plus 1', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => countJsonParts(bytes, 50) <= 51),
    );
  });
});

describe('countBinaryParts and countJsonParts', () => {
  it('return less than the limit for a workload with the largest lists and maps', () => {
    const map = (count: number, size: number): Record<string, string> =>
      Object.fromEntries(
        Array.from({ length: count }, (_, index) => [`key-${index}`, 'x'.repeat(size)]),
      );
    const message = create(schema, {
      name: 'large',
      spec: {
        command: Array.from({ length: 256 }, () => 'word'),
        env: map(256, 1_000),
        labels: map(64, 63),
        annotations: map(64, 2_000),
      },
    });
    expect(countBinaryParts(schema, toBinary(schema, message), LIMIT)).toBeLessThan(LIMIT);
    expect(countJsonParts(Buffer.from(toJsonString(schema, message)), LIMIT)).toBeLessThan(LIMIT);
    expect(fromJsonString(schema, toJsonString(schema, message))).toEqual(message);
  });
});

function parseOrZero(parse: () => number): number {
  try {
    return parse();
  } catch {
    return 0;
  }
}
