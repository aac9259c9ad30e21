import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { LogBatchSchema, LogEntrySchema, OutputStream } from '../gen.js';
import { encodeLogBatch, decodeLines, type BatchLine } from './log-batch.js';

const arbLine: fc.Arbitrary<BatchLine> = fc
  .record({
    sequence: fc.oneof(
      fc.bigInt({ min: 1n, max: 300n }),
      fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }),
    ),
    timeMs: fc.oneof(
      fc.constant(1_700_000_000_123),
      fc.integer({ min: -10_000, max: 253_402_300_799_999 }),
    ),
    stream: fc.constantFrom(OutputStream.STDOUT, OutputStream.STDERR),
    text: fc
      .string({ unit: 'binary', maxLength: 200 })
      .map((text) => new TextEncoder().encode(text)),
    raw: fc.option(fc.uint8Array({ minLength: 1, maxLength: 200 }), { nil: undefined }),
    partial: fc.boolean(),
  })
  .map(({ raw, ...line }) => (raw === undefined ? line : { ...line, raw }));

const toEntry = ({ sequence, timeMs, stream, text, raw, partial }: BatchLine, owner = {}) =>
  create(LogEntrySchema, {
    ...owner,
    ...{
      sequence,
      stream,
      partial,
      time: timestampFromMs(timeMs),
      line: new TextDecoder('utf-8', { ignoreBOM: true }).decode(text),
    },
    ...(raw === undefined ? {} : { raw: new Uint8Array(raw) }),
  });

describe('encodeLogBatch', () => {
  it('encodes lines so that the generic decoder returns them', () => {
    fc.assert(
      fc.property(fc.array(arbLine, { maxLength: 20 }), (lines) => {
        const expected = create(LogBatchSchema, { entries: lines.map((line) => toEntry(line)) });
        expect(fromBinary(LogBatchSchema, encodeLogBatch(lines))).toEqual(expected);
      }),
    );
  });
});

describe('decodeLines', () => {
  it('returns the lines of encodeLogBatch, with container and replica of the entry', () => {
    fc.assert(
      fc.property(fc.array(arbLine, { minLength: 1, maxLength: 20 }), (lines) => {
        const owner = { containerId: 'ab12', replicaId: 'r-1' };
        const entry = create(LogEntrySchema, {
          ...owner,
          sequence: 1n,
          batch: new Uint8Array(encodeLogBatch(lines)),
        });
        expect(decodeLines(entry)).toEqual(lines.map((line) => toEntry(line, owner)));
      }),
    );
  });

  it('skips unknown fields of a batch and of its lines', () => {
    const known = toBinary(
      LogBatchSchema,
      create(LogBatchSchema, { entries: [create(LogEntrySchema, { sequence: 5n })] }),
    );
    const unknownInside = Uint8Array.of(0x0a, 5, 0x18, 7, 0xfa, 0x01, 0); // field 31, empty
    const batch = new Uint8Array([0x7a, 1, 9, ...known, ...unknownInside]);
    const entry = create(LogEntrySchema, { batch });
    expect(decodeLines(entry).map(({ sequence }) => sequence)).toEqual([5n, 7n]);
  });

  it('returns an entry without a batch unchanged', () => {
    const entry = create(LogEntrySchema, { sequence: 3n, line: 'text' });
    expect(decodeLines(entry)).toEqual([entry]);
  });

  it('decodes any bytes or throws an Error', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 300 }), (batch) => {
        try {
          decodeLines(create(LogEntrySchema, { batch: new Uint8Array(batch) }));
        } catch (reason) {
          expect(reason).toBeInstanceOf(Error);
        }
      }),
    );
  });
});
