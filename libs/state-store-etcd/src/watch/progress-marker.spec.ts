import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { MARK_AFTER_MS, ProgressMarker, type FullWatch } from './progress-marker.js';

function start(watch: { position: bigint; isWaiting: boolean }) {
  const clock = new ManualClock();
  const marks: { fails: boolean; count: number } = { fails: false, count: 0 };
  const marker = new ProgressMarker({
    clock,
    log: silentLog,
    mark: () => {
      marks.count += 1;
      return marks.fails ? Promise.reject(new Error('no space')) : Promise.resolve();
    },
  });
  const remove = marker.add(watch satisfies FullWatch);
  return { clock, marker, marks, remove };
}

describe('ProgressMarker', () => {
  it('marks once when a watch does not show a revision that a reader knows', async () => {
    const { clock, marker, marks } = start({ position: 3n, isWaiting: true });
    marker.recordKnown(5n);
    await clock.advance(MARK_AFTER_MS - 1);
    expect(marks.count).toBe(0);
    await clock.advance(1);
    expect(marks.count).toBe(1);
    await clock.advance(10 * MARK_AFTER_MS);
    expect(marks.count).toBe(1);
  });

  it.each([
    {
      name: 'the watch shows the revision in time',
      act: ({ watch }: { watch: { position: bigint } }) => void (watch.position = 5n),
    },
    {
      name: 'a later change of the store is on its way',
      act: ({ marker }: { marker: ProgressMarker }) => marker.recordChange(6n),
    },
    { name: 'the watch has ended', act: ({ remove }: { remove: () => void }) => remove() },
    { name: 'the store is closed', act: ({ marker }: { marker: ProgressMarker }) => marker.stop() },
  ])('does not mark when $name', async ({ act }) => {
    const watch = { position: 3n, isWaiting: true };
    const { clock, marker, marks, remove } = start(watch);
    marker.recordKnown(5n);
    act({ watch, marker, remove });
    await clock.advance(10 * MARK_AFTER_MS);
    expect(marks.count).toBe(0);
  });

  it('does not mark for a reader who is slow, until the reader waits', async () => {
    const watch = { position: 3n, isWaiting: false };
    const { clock, marker, marks } = start(watch);
    marker.recordKnown(5n);
    await clock.advance(10 * MARK_AFTER_MS);
    expect(marks.count).toBe(0);
    watch.isWaiting = true;
    await clock.advance(MARK_AFTER_MS);
    expect(marks.count).toBe(1);
  });

  it('marks again after a mark failed', async () => {
    const { clock, marker, marks } = start({ position: 3n, isWaiting: true });
    marks.fails = true;
    marker.recordKnown(5n);
    await clock.advance(MARK_AFTER_MS);
    marks.fails = false;
    await clock.advance(10 * MARK_AFTER_MS);
    expect(marks.count).toBe(2);
  });
});
