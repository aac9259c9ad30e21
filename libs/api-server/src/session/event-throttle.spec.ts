import { ManualClock } from '@cloudless/base/testing';
import { EventThrottle } from './event-throttle.js';

const aReadyEvent = (replicaId = 'w-1') => ({ reason: 'ReplicaReady', replicaId });

describe('EventThrottle', () => {
  it('suppresses events above the rate limit and later returns the newest one with the number of suppressed events', async () => {
    const clock = new ManualClock();
    const flapping = new EventThrottle(clock);
    const told = Array.from({ length: 9 }, (_, turn) =>
      flapping.admit(
        'node-1',
        turn % 2 === 0 ? aReadyEvent() : { ...aReadyEvent(), reason: 'ReplicaNotReady' },
      ),
    );
    expect(told.filter((event) => event !== undefined)).toHaveLength(6);
    expect(flapping.takeDue('node-1', 10)).toEqual([]);
    const waitMs = flapping.getNextDueMs('node-1') ?? 0;
    expect(waitMs).toBe(60_000);
    expect(flapping.getNextDueMs('node-2')).toBeUndefined();
    await clock.advance(waitMs);
    expect(flapping.takeDue('node-2', 10)).toEqual([]);
    expect(flapping.takeDue('node-1', 10)).toMatchObject([
      { reason: 'ReplicaReady', count: 3, firstTime: expect.anything() },
    ]);
    expect(flapping.getNextDueMs('node-1')).toBeUndefined();
  });

  it('passes the end of a replica at once and discards its suppressed events', async () => {
    const clock = new ManualClock();
    const flapping = new EventThrottle(clock);
    for (let turn = 0; turn < 9; turn += 1) flapping.admit('node-1', aReadyEvent());
    const end = { reason: 'ReplicaStopped', replicaId: 'w-1' };
    expect(flapping.admit('node-1', end)).toBe(end);
    await clock.advance(60_000);
    expect(flapping.takeDue('node-1', 10)).toEqual([]);
  });

  it('limits each replica separately', () => {
    const flapping = new EventThrottle(new ManualClock());
    for (let turn = 0; turn < 9; turn += 1) flapping.admit('node-1', aReadyEvent('w-1'));
    expect(flapping.admit('node-1', aReadyEvent('w-2'))).toEqual(aReadyEvent('w-2'));
  });
});
