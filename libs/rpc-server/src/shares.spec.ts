import { ManualClock } from '@cloudless/base/testing';
import { Code } from '@connectrpc/connect';
import { ByteBudget } from './byte-budget.js';
import { ResetLimit } from './reset-limit.js';
import { StreamShares } from './stream-shares.js';

describe('streams', () => {
  const limits = { streams: 3, streamsPerPrincipal: 2, controlStreamsPerPrincipal: 1 };

  it('are counted by principal and in total, and given back once', () => {
    const shares = new StreamShares(limits);
    const end = shares.begin('read', 'a');
    shares.begin('write', 'a');
    expect(() => shares.begin('read', 'a')).toThrow('this connection has 2 streams open, as many as it may; close some first');
    shares.begin('read', 'b');
    expect(() => shares.begin('read', 'c')).toThrow(expect.objectContaining({ code: Code.ResourceExhausted }));
    end();
    end();
    expect([shares.open, shares.refused]).toEqual([2, 2]);
    shares.begin('read', 'c');
  });

  it('of the control lane have a share of their own', () => {
    const shares = new StreamShares({ ...limits, streams: 0 });
    const end = shares.begin('control', 'a');
    expect(() => shares.begin('control', 'a')).toThrow('1 streams open');
    end();
    shares.begin('control', 'a');
    expect(shares.open).toBe(0);
  });
});

describe('bytes', () => {
  it('beyond the budget cost who holds the most its largest call', () => {
    const cut: string[] = [];
    const budget = new ByteBudget(100);
    const hold = (principal: string, name: string, bytes: number) => {
      const held = budget.hold(principal, () => cut.push(name));
      held.add(bytes);
      return held;
    };
    hold('a', 'a1', 20);
    const largest = hold('a', 'a2', 30);
    hold('b', 'b1', 40);
    expect([cut, budget.bytes, budget.bytesOf('a')]).toEqual([[], 90, 50]);
    hold('c', 'c1', 15);
    expect([cut, budget.bytes, budget.cuts]).toEqual([['a2'], 75, 1]);
    largest.add(1_000); // of a call that was cut nothing counts
    largest.release();
    expect(budget.bytes).toBe(75);
  });

  it('are given back once, and that is told', () => {
    let told = 0;
    const budget = new ByteBudget(100, () => (told += 1));
    const held = budget.hold('a', () => undefined);
    held.add(10);
    held.add(-4);
    held.release();
    held.release();
    held.add(7);
    expect([budget.bytes, budget.bytesOf('a'), told]).toEqual([0, 0, 2]);
  });
});

it('resets are allowed in a burst, then as many as refill', async () => {
  const clock = new ManualClock();
  const limit = new ResetLimit(clock, { resetBurst: 3, resetsPerSecond: 2 });
  expect([1, 2, 3, 4].map(() => limit.allows())).toEqual([true, true, true, false]);
  await clock.advance(1_000);
  expect([1, 2].map(() => limit.allows())).toEqual([true, false]);
  await clock.advance(60_000);
  expect([1, 2, 3, 4].map(() => limit.allows())).toEqual([true, true, true, false]);
});
