import fc from 'fast-check';
import type { LogLine } from '@cloudless/runtime';
import { encodeLogRecord, parseLogRecords } from './log-record.js';

const anyLine: fc.Arbitrary<LogLine> = fc.record({
  sequence: fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }),
  stream: fc.constantFrom('stdout' as const, 'stderr' as const),
  timeMs: fc.integer({ min: 0, max: 9_007_199_254_740_991 }),
  text: fc
    .uint8Array({ maxLength: 60 })
    .map((bytes) => bytes.map((byte) => (byte === 10 ? 0 : byte))),
  partial: fc.boolean(),
});

describe('log records', () => {
  it('are parsed as they were encoded, up to an incomplete record', () => {
    fc.assert(
      fc.property(fc.array(anyLine), anyLine, fc.nat(), (lines, torn, cut) => {
        const whole = Buffer.concat(lines.map(encodeLogRecord));
        const last = encodeLogRecord(torn);
        const bytes = Buffer.concat([whole, last.subarray(0, cut % last.length)]);
        expect(parseLogRecords(bytes)).toEqual({ lines, consumed: whole.length });
      }),
    );
  });

  it('are parsed after damaged bytes, which are omitted without an exception', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), anyLine, (noise, good) => {
        const { lines, consumed } = parseLogRecords(
          Buffer.concat([noise, Buffer.from('\n'), encodeLogRecord(good)]),
        );
        expect(lines.at(-1)).toEqual(good);
        expect(consumed).toBe(noise.length + 1 + encodeLogRecord(good).length);
      }),
    );
  });
});
