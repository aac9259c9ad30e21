import fc from 'fast-check';
import { HistoryWindow, type HistorySegment } from './history-window.js';

describe('HistoryWindow', () => {
  it('keeps at least the limit, and no more than a quarter and one segment beyond it', () => {
    const arbSizes = fc.array(fc.integer({ min: 1, max: 20 }), { maxLength: 200 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 50 }), arbSizes, (limit, sizes) => {
        const window = new HistoryWindow(limit);
        let kept: HistorySegment[] = [];
        for (const [index, changes] of sizes.entries()) {
          const added = [{ first: BigInt(index), last: BigInt(index), changes }];
          const dropped = window.surplusWith(added);
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

  it('goes on from what was retained before', () => {
    const retained = [1, 2, 3].map((revision) => ({ first: BigInt(revision), last: BigInt(revision), changes: 4 }));
    expect(new HistoryWindow(4, retained).surplusWith([])).toEqual(retained.slice(0, 2));
  });
});
