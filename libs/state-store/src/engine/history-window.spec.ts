import fc from 'fast-check';
import { HistoryWindow, type HistorySegment } from './history-window.js';

/** More bytes than any test adds, so that only the limit of changes applies. */
const AMPLE_BYTES = 1_000_000;

describe('HistoryWindow', () => {
  it('exceeds the limit of bytes by at most the newest segment', () => {
    const arbBytes = fc.array(fc.integer({ min: 1, max: 300 }), { maxLength: 200 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1_000 }), arbBytes, (limit, sizes) => {
        const window = new HistoryWindow({ changes: 1_000, bytes: limit });
        let kept: HistorySegment[] = [];
        for (const [index, bytes] of sizes.entries()) {
          const added = [{ first: BigInt(index), last: BigInt(index), changes: 1, bytes }];
          const dropped = window.findSurplus(added);
          window.advance(added, dropped);
          kept.push(...added);
          expect(kept.slice(0, dropped.length)).toEqual(dropped);
          kept = kept.slice(dropped.length);
          expect(kept.length).toBeGreaterThan(0);
          expect(
            kept.slice(0, -1).reduce((sum, segment) => sum + segment.bytes, 0),
          ).toBeLessThanOrEqual(limit);
          // Nothing is dropped before the limit is exceeded, and not more than an eighth of the
          // limit and one segment.
          if (dropped.length > 0) {
            const total = kept.reduce(
              (sum, segment) => sum + segment.bytes,
              dropped.at(-1)?.bytes ?? 0,
            );
            expect(total).toBeGreaterThan(limit - Math.floor(limit / 8));
          }
        }
      }),
    );
  });

  it('keeps at least the limit of changes, and at most a quarter or one segment more', () => {
    const arbSizes = fc.array(fc.integer({ min: 1, max: 20 }), { maxLength: 200 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 50 }), arbSizes, (limit, sizes) => {
        const window = new HistoryWindow({ changes: limit, bytes: AMPLE_BYTES });
        let kept: HistorySegment[] = [];
        for (const [index, changes] of sizes.entries()) {
          const added = [{ first: BigInt(index), last: BigInt(index), changes, bytes: 1 }];
          const dropped = window.findSurplus(added);
          window.advance(added, dropped);
          kept.push(...added);
          expect(kept.slice(0, dropped.length)).toEqual(dropped);
          kept = kept.slice(dropped.length);
          const total = kept.reduce((sum, segment) => sum + segment.changes, 0);
          const written = sizes.slice(0, index + 1).reduce((sum, size) => sum + size, 0);
          expect(total).toBeGreaterThanOrEqual(Math.min(limit, written));
          expect(total).toBeLessThanOrEqual(limit + Math.max(Math.floor(limit / 4), 20));
        }
      }),
    );
  });

  it('finds surplus among the segments that its constructor receives', () => {
    const retained = [1, 2, 3].map((revision) => ({
      first: BigInt(revision),
      last: BigInt(revision),
      changes: 4,
      bytes: 10,
    }));
    expect(new HistoryWindow({ changes: 4, bytes: AMPLE_BYTES }, retained).findSurplus([])).toEqual(
      retained.slice(0, 2),
    );
    expect(new HistoryWindow({ changes: 100, bytes: 25 }, retained).findSurplus([])).toEqual(
      retained.slice(0, 1),
    );
  });
});
