import { ManualClock } from '@cloudless/base/testing';
import { FlappingEvents } from './flapping-events.js';

const ready = (replicaId = 'w-1') => ({ reason: 'ReplicaReady', replicaId });

describe('EventThrottle', () => {
  it('suppresses events above the rate limit and later returns the newest one with the number of suppressed events', async () => {
    const clock = new ManualClock();
    const flapping = new FlappingEvents(clock);
    const told = Array.from({ length: 9 }, (_, turn) =>
      flapping.admit(
        'node-1',
        turn % 2 === 0 ? ready() : { ...ready(), reason: 'ReplicaNotReady' },
      ),
    );
    expect(told.filter((event) => event !== undefined)).toHaveLength(6);
    expect(flapping.due('node-1', 10)).toEqual([]);
    const waitMs = flapping.nextDueMs('node-1') ?? 0;
    expect(waitMs).toBe(60_000);
    expect(flapping.nextDueMs('node-2')).toBeUndefined();
    await clock.advance(waitMs);
    expect(flapping.due('node-2', 10)).toEqual([]);
    expect(flapping.due('node-1', 10)).toMatchObject([
      { reason: 'ReplicaReady', count: 3, firstTime: expect.anything() },
    ]);
    expect(flapping.nextDueMs('node-1')).toBeUndefined();
  });

  it('passes the end of a replica at once and discards its suppressed events', async () => {
    const clock = new ManualClock();
    const flapping = new FlappingEvents(clock);
    for (let turn = 0; turn < 9; turn += 1) flapping.admit('node-1', ready());
    const end = { reason: 'ReplicaStopped', replicaId: 'w-1' };
    expect(flapping.admit('node-1', end)).toBe(end);
    await clock.advance(60_000);
    expect(flapping.due('node-1', 10)).toEqual([]);
  });

  it('limits each replica separately', () => {
    const flapping = new FlappingEvents(new ManualClock());
    for (let turn = 0; turn < 9; turn += 1) flapping.admit('node-1', ready('w-1'));
    expect(flapping.admit('node-1', ready('w-2'))).toEqual(ready('w-2'));
  });
});
