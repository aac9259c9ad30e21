import { ManualClock } from '@cloudless/base/testing';
import { Code } from '@connectrpc/connect';
import { ByteBudget } from './byte-budget.js';
import { ResetLimit } from './reset-limit.js';
import { peerOf } from './peer.js';
import { StreamShares } from './stream-shares.js';

describe('StreamLimiter', () => {
  const limits = {
    streams: 3,
    streamsPerPeer: 3,
    streamsPerPrincipal: 2,
    controlStreamsPerPrincipal: 1,
  };

  it('counts streams by principal and in total, and releases each once', () => {
    const shares = new StreamShares(limits);
    const end = shares.begin('read', 'a', '192.0.2.1');
    shares.begin('write', 'a', '192.0.2.1');
    expect(() => shares.begin('read', 'a', '192.0.2.1')).toThrow(
      'this client has 2 streams open, the limit of one client; close some first',
    );
    shares.begin('read', 'b', '192.0.2.2');
    expect(() => shares.begin('read', 'c', '192.0.2.3')).toThrow(
      expect.objectContaining({
        code: Code.ResourceExhausted,
        rawMessage: 'the server has 3 streams open, its limit; try again later',
      }),
    );
    end();
    end();
    expect([shares.open, shares.refused]).toEqual([2, 2]);
    shares.begin('read', 'c', '192.0.2.3');
  });

  it('counts streams by address, over all clients of the address', () => {
    const shares = new StreamShares({ ...limits, streams: 9 });
    const ends = ['a', 'b', 'c'].map((principal) => shares.begin('read', principal, '192.0.2.1'));
    expect(() => shares.begin('read', 'd', '192.0.2.1')).toThrow(
      expect.objectContaining({
        code: Code.ResourceExhausted,
        rawMessage:
          'clients at 192.0.2.1 have 3 streams open, the limit of one address; close some first',
      }),
    );
    shares.begin('read', 'e', '192.0.2.2');
    ends[0]?.();
    ends[0]?.();
    shares.begin('read', 'd', '192.0.2.1');
    expect(() => shares.begin('read', 'f', '192.0.2.1')).toThrow('the limit of one address');
    expect(shares.open).toBe(4);
  });

  it.each([
    {
      name: 'all of 127.0.0.0/8, and ::1',
      addresses: ['127.0.0.1', '127.8.9.10', '::1', '::ffff:127.0.0.2'],
    },
    { name: 'an IPv4 address and its IPv6 form', addresses: ['192.0.2.1', '::ffff:192.0.2.1'] },
    {
      name: 'a /64 of IPv6',
      addresses: ['2001:db8:0:1::1', '2001:db8:0:1:ffff:0:0:9', '2001:db8::1:a:b:c:d'],
    },
  ])('uses one limit for $name', ({ addresses }) => {
    expect(new Set(addresses.map(peerOf)).size).toBe(1);
  });

  it.each([
    { name: 'IPv4', addresses: ['192.0.2.1', '192.0.2.2'] },
    { name: 'IPv6', addresses: ['2001:db8:0:1::1', '2001:db8:0:2::1'] },
  ])('uses separate limits for different $name addresses', ({ addresses }) => {
    expect(new Set(addresses.map(peerOf)).size).toBe(2);
  });

  it('limits control streams of a principal separately, and not by address', () => {
    const shares = new StreamShares({ ...limits, streams: 0 });
    const end = shares.begin('control', 'a', '192.0.2.1');
    expect(() => shares.begin('control', 'a', '192.0.2.1')).toThrow('1 streams open');
    end();
    for (const agent of ['a', 'b', 'c', 'd']) shares.begin('control', agent, '192.0.2.1');
    expect(shares.open).toBe(0);
  });
});

describe('ByteBudget', () => {
  it('aborts the largest call of the principal that holds the most when the budget is exceeded', () => {
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
    largest.add(1_000); // an aborted call counts no more bytes
    largest.release();
    expect(budget.bytes).toBe(75);
  });

  it('releases the bytes of each call of a principal separately', () => {
    const budget = new ByteBudget(100);
    const [first, second] = [budget.hold('a', () => undefined), budget.hold('a', () => undefined)];
    first.add(30);
    second.add(50);
    first.release();
    expect([budget.bytesOf('a'), budget.bytes]).toEqual([50, 50]);
    second.release();
    expect([budget.bytesOf('a'), budget.bytes]).toEqual([0, 0]);
  });

  it('releases bytes once and runs onRelease', () => {
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

describe('StreamResetLimiter', () => {
  it('allows a burst of resets, then as many as the bucket refills', async () => {
    const clock = new ManualClock();
    const limit = new ResetLimit(clock, { resetBurst: 3, resetsPerSecond: 2 });
    expect([1, 2, 3, 4].map(() => limit.allows())).toEqual([true, true, true, false]);
    await clock.advance(1_000);
    expect([1, 2].map(() => limit.allows())).toEqual([true, false]);
    await clock.advance(60_000);
    expect([1, 2, 3, 4].map(() => limit.allows())).toEqual([true, true, true, false]);
  });
});
