import { ManualClock } from '@cloudless/base/testing';
import { EventThrottle } from './event-throttle.js';

const aReadyEvent = (replicaId = 'w-1') => ({ reason: 'ReplicaReady', replicaId });

describe('EventThrottle', () => {
  it('suppresses events of a replica after the first 6, and returns the newest one with their number after a minute', async () => {
    const clock = new ManualClock();
    const throttle = new EventThrottle(clock);
    const admitted = Array.from({ length: 9 }, (_, turn) =>
      throttle.admit(
        'node-1',
        turn % 2 === 0 ? aReadyEvent() : { ...aReadyEvent(), reason: 'ReplicaNotReady' },
      ),
    );
    expect(admitted.filter((event) => event !== undefined)).toHaveLength(6);
    expect(throttle.takeDue('node-1', 10)).toEqual([]);
    const waitMs = throttle.getNextDueMs('node-1') ?? 0;
    expect(waitMs).toBe(60_000);
    expect(throttle.getNextDueMs('node-2')).toBeUndefined();
    await clock.advance(waitMs);
    expect(throttle.takeDue('node-2', 10)).toEqual([]);
    expect(throttle.takeDue('node-1', 10)).toMatchObject([
      { reason: 'ReplicaReady', count: 3, firstTime: expect.anything() },
    ]);
    expect(throttle.getNextDueMs('node-1')).toBeUndefined();
  });

  it('admits the end of a replica at once and discards the suppressed events of the replica', async () => {
    const clock = new ManualClock();
    const throttle = new EventThrottle(clock);
    for (let turn = 0; turn < 9; turn += 1) throttle.admit('node-1', aReadyEvent());
    const end = { reason: 'ReplicaStopped', replicaId: 'w-1' };
    expect(throttle.admit('node-1', end)).toBe(end);
    await clock.advance(60_000);
    expect(throttle.takeDue('node-1', 10)).toEqual([]);
  });

  it('limits each replica separately', () => {
    const throttle = new EventThrottle(new ManualClock());
    for (let turn = 0; turn < 9; turn += 1) throttle.admit('node-1', aReadyEvent('w-1'));
    expect(throttle.admit('node-1', aReadyEvent('w-2'))).toEqual(aReadyEvent('w-2'));
  });

  it('drops a late event that could not be committed when a newer event was emitted meanwhile', async () => {
    const clock = new ManualClock();
    const throttle = new EventThrottle(clock);
    for (const replicaId of ['w-1', 'w-2'])
      for (let turn = 0; turn < 9; turn += 1) throttle.admit('node-1', aReadyEvent(replicaId));
    await clock.advance(120_000);
    const late = throttle.takeDue('node-1', 10);
    expect(late).toHaveLength(2);
    throttle.admit('node-1', { reason: 'ReplicaNotReady', replicaId: 'w-1' });
    throttle.requeue('node-1', late);
    const again = throttle.takeDue('node-1', 10);
    expect(again).toMatchObject([{ replicaId: 'w-2', count: 3 }]);
    throttle.confirm(again);
    throttle.requeue('node-1', again);
    expect(throttle.takeDue('node-1', 10)).toEqual([]);
  });
});
