import { StoppedError, sleep } from '../index.js';
import { ManualClock, settle } from '../testing/index.js';

function watchOutcome(promise: Promise<void>) {
  const seen: { outcome?: 'done' | StoppedError } = {};
  promise.then(
    () => (seen.outcome = 'done'),
    (reason: StoppedError) => (seen.outcome = reason),
  );
  return seen;
}

describe('sleep', () => {
  it('resolves after its delay and not earlier', async () => {
    const clock = new ManualClock();
    const sleeping = watchOutcome(sleep(clock, 100));
    await clock.advance(99);
    expect(sleeping.outcome).toBeUndefined();
    await clock.advance(1);
    expect(sleeping.outcome).toBe('done');
  });

  it('rejects at once with the reason as cause, and leaves no timer, when the signal is aborted', async () => {
    const clock = new ManualClock();
    const stop = new AbortController();
    const sleeping = watchOutcome(sleep(clock, 100, stop.signal));
    await clock.advance(10);
    stop.abort('shutting down');
    await settle();
    expect(sleeping.outcome).toBeInstanceOf(StoppedError);
    expect(sleeping.outcome).toMatchObject({
      name: 'StoppedError',
      message: 'stopped',
      cause: 'shutting down',
    });
    expect(clock.pendingTimers).toBe(0);
  });

  it('rejects without a timer when the signal was already aborted', async () => {
    const clock = new ManualClock();
    await expect(sleep(clock, 100, AbortSignal.abort(new Error('why')))).rejects.toMatchObject({
      cause: { message: 'why' },
    });
    expect(clock.pendingTimers).toBe(0);
  });

  it('leaves no listener on the signal when its delay has passed', async () => {
    const clock = new ManualClock();
    let listeners = 0;
    const signal = {
      aborted: false,
      addEventListener: () => void (listeners += 1),
      removeEventListener: () => void (listeners -= 1),
    };
    for (let round = 0; round < 3; round += 1) {
      const sleeping = watchOutcome(sleep(clock, 5, signal));
      expect(listeners).toBe(1);
      await clock.advance(5);
      expect(sleeping.outcome).toBe('done');
      expect(listeners).toBe(0);
    }
  });
});

describe('StoppedError', () => {
  it('has no cause when it is created without a reason', () => {
    expect(new StoppedError()).not.toHaveProperty('cause');
  });
});
