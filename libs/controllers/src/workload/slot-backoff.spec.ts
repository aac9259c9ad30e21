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

  it('waits at most five minutes after the clock was set back by a year', () => {
    const control = create(ControlRecordSchema, { uid: 'w' });
    const later = new SlotBackoffs(control, 365 * 86_400_000);
    later.recordFailure(0, 0);
    later.recordFailure(0, 0);
    expect(new SlotBackoffs(control, 0).getWaitMs(0)).toBe(300_000);
  });
});
