import { create } from '@bufbuild/protobuf';
import { ControlRecordSchema } from '@cloudless/api/store';
import { SlotBackoffs } from './slot-backoff.js';

describe('SlotBackoffs', () => {
  it('delays a slot by 0 s, 1 s, 2 s and so on up to 5 min, and no other slot', () => {
    const control = create(ControlRecordSchema, { uid: 'w' });
    const waits: number[] = [];
    for (let failure = 0; failure < 12; failure += 1) {
      const backoffs = new SlotBackoffs(control, 1_000_000);
      backoffs.recordFailure(0, 0);
      waits.push(backoffs.getWaitMs(0) / 1_000);
    }
    expect(waits).toEqual([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    expect(new SlotBackoffs(control, 1_000_000).getWaitMs(1)).toBe(0);
  });

  it('resets the delay when the failed replica was ready for ten minutes', () => {
    const control = create(ControlRecordSchema, { uid: 'w' });
    const backoffs = new SlotBackoffs(control, 0);
    for (let failure = 0; failure < 5; failure += 1) backoffs.recordFailure(0, 0);
    backoffs.recordFailure(0, 600_000);
    expect(backoffs.getWaitMs(0)).toBe(0);
  });

  it('ends the delay at the time that the failure set', () => {
    const control = create(ControlRecordSchema, { uid: 'w' });
    for (let failure = 0; failure < 5; failure += 1)
      new SlotBackoffs(control, 0).recordFailure(0, 0);
    const waits = [0, 3_000, 8_000, 9_000].map((now) =>
      new SlotBackoffs(control, now).getWaitMs(0),
    );
    expect(waits).toEqual([8_000, 5_000, 0, 0]);
  });

  it.each([
    { name: 'the clock was set back by a year', aheadMs: 365 * 86_400_000 },
    { name: 'the clock of the earlier leader was two minutes ahead', aheadMs: 120_000 },
  ])('does not wait when $name', ({ aheadMs }) => {
    const control = create(ControlRecordSchema, { uid: 'w' });
    const earlier = new SlotBackoffs(control, aheadMs);
    earlier.recordFailure(0, 0);
    earlier.recordFailure(0, 0);
    expect(new SlotBackoffs(control, 0).getWaitMs(0)).toBe(0);
  });
});
