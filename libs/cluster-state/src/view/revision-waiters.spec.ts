import { StoppedError, type StopSignal } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { RevisionWaiters } from './revision-waiters.js';

/** A signal that counts the listeners on it. */
class CountingSignal implements StopSignal {
  aborted = false;
  readonly reason = 'the term has ended';
  readonly listeners = new Set<() => void>();

  addEventListener(_type: 'abort', listener: () => void): void {
    this.listeners.add(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    this.listeners.delete(listener);
  }

  abort(): void {
    this.aborted = true;
    for (const listener of this.listeners) listener();
  }
}

let waiters: RevisionWaiters;
let signal: CountingSignal;
let outcomes: string[];

beforeEach(() => {
  waiters = new RevisionWaiters();
  signal = new CountingSignal();
  outcomes = [];
});

/** Begins a wait, and records its end. */
function wait(revision: bigint, until?: StopSignal): void {
  waiters.wait(revision, until).then(
    () => outcomes.push(`${revision} shown`),
    (reason: unknown) =>
      outcomes.push(`${revision} ${reason instanceof StoppedError ? 'stopped' : String(reason)}`),
  );
}

describe('RevisionWaiters', () => {
  it('resolves the waits up to a revision in the order in which they began', async () => {
    for (const revision of [3n, 5n, 4n]) wait(revision, revision === 3n ? signal : undefined);
    waiters.resolveUpTo(4n);
    await settle();
    expect(outcomes).toEqual(['3 shown', '4 shown']);
  });

  it('puts one listener on a signal for all of its waits, and removes it with the last of them', async () => {
    for (let revision = 1n; revision <= 20n; revision += 1n) wait(revision, signal);
    expect(signal.listeners.size).toBe(1);
    waiters.resolveUpTo(19n);
    expect(signal.listeners.size).toBe(1);
    waiters.resolveUpTo(20n);
    expect(signal.listeners.size).toBe(0);
    wait(21n, signal);
    expect(signal.listeners.size).toBe(1);
    waiters.rejectAll(new Error('closed'));
    expect(signal.listeners.size).toBe(0);
    await settle();
    expect(outcomes.slice(-2)).toEqual(['20 shown', '21 Error: closed']);
  });

  it('ends the waits of a signal when it is aborted, and no others', async () => {
    for (const revision of [1n, 2n]) wait(revision, signal);
    wait(1n, new CountingSignal());
    signal.abort();
    await settle();
    expect(outcomes).toEqual(['1 stopped', '2 stopped']);
    expect(signal.listeners.size).toBe(0);
    waiters.resolveUpTo(2n);
    await settle();
    expect(outcomes.slice(2)).toEqual(['1 shown']);
  });
});
