import { Code } from '@connectrpc/connect';
import { ManualClock } from '@cloudless/base/testing';
import { StreamResetLimiter } from '../transport/stream-reset-limiter.js';
import { ByteBudget } from './byte-budget.js';
import { toPeerKey } from './peer-key.js';
import { StreamLimiter } from './stream-limiter.js';

describe('StreamLimiter', () => {
  const limits = {
    streams: 3,
    streamsPerPeer: 3,
    streamsPerPrincipal: 2,
    controlStreamsPerPrincipal: 1,
  };

  it('counts streams by principal and in total, and releases each once', () => {
    const shares = new StreamLimiter(limits);
    const end = shares.acquire('read', 'a', '192.0.2.1');
    shares.acquire('write', 'a', '192.0.2.1');
    expect(() => shares.acquire('read', 'a', '192.0.2.1')).toThrow(
      'this client has 2 streams open, the limit of one client; close some first',
    );
    shares.acquire('read', 'b', '192.0.2.2');
    expect(() => shares.acquire('read', 'c', '192.0.2.3')).toThrow(
      expect.objectContaining({
        code: Code.ResourceExhausted,
        rawMessage: 'the server has 3 streams open, its limit; try again later',
      }),
    );
    end();
    end();
    expect([shares.openStreams, shares.refusedStreams]).toEqual([2, 2]);
    shares.acquire('read', 'c', '192.0.2.3');
  });

  it('lets a principal open exactly one stream for each of its streams that has ended', () => {
    const limiter = new StreamLimiter(limits);
    const release = limiter.acquire('read', 'a', '192.0.2.1');
    limiter.acquire('read', 'a', '192.0.2.1');
    release();
    limiter.acquire('read', 'a', '192.0.2.1');
    expect(() => limiter.acquire('read', 'a', '192.0.2.1')).toThrow('the limit of one client');
  });

  it('counts streams by address, over all clients of the address', () => {
    const shares = new StreamLimiter({ ...limits, streams: 9 });
    const ends = ['a', 'b', 'c'].map((principal) => shares.acquire('read', principal, '192.0.2.1'));
    expect(() => shares.acquire('read', 'd', '192.0.2.1')).toThrow(
      expect.objectContaining({
        code: Code.ResourceExhausted,
        rawMessage:
          'clients at 192.0.2.1 have 3 streams open, the limit of one address; close some first',
      }),
    );
    shares.acquire('read', 'e', '192.0.2.2');
    ends[0]?.();
    ends[0]?.();
    shares.acquire('read', 'd', '192.0.2.1');
    expect(() => shares.acquire('read', 'f', '192.0.2.1')).toThrow('the limit of one address');
    expect(shares.openStreams).toBe(4);
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
    expect(new Set(addresses.map(toPeerKey)).size).toBe(1);
  });

  it.each([
    { name: 'IPv4', addresses: ['192.0.2.1', '192.0.2.2'] },
    { name: 'IPv6', addresses: ['2001:db8:0:1::1', '2001:db8:0:2::1'] },
  ])('uses separate limits for different $name addresses', ({ addresses }) => {
    expect(new Set(addresses.map(toPeerKey)).size).toBe(2);
  });

  it('limits control streams of a principal separately, and not by address', () => {
    const shares = new StreamLimiter({ ...limits, streams: 0 });
    const end = shares.acquire('control', 'a', '192.0.2.1');
    expect(() => shares.acquire('control', 'a', '192.0.2.1')).toThrow('1 streams open');
    end();
    for (const agent of ['a', 'b', 'c', 'd']) shares.acquire('control', agent, '192.0.2.1');
    expect(shares.openStreams).toBe(0);
  });
});

describe('ByteBudget', () => {
  it('aborts the largest call of the principal that holds the most when the budget is exceeded', () => {
    const aborted: string[] = [];
    const budget = new ByteBudget(100);
    const hold = (principal: string, name: string, bytes: number) => {
      const held = budget.track(principal, () => aborted.push(name));
      held.add(bytes);
      return held;
    };
    hold('a', 'a1', 20);
    const largest = hold('a', 'a2', 30);
    hold('b', 'b1', 40);
    expect([aborted, budget.bytes, budget.getBytes('a')]).toEqual([[], 90, 50]);
    hold('c', 'c1', 15);
    expect([aborted, budget.bytes, budget.aborted]).toEqual([['a2'], 75, 1]);
    largest.add(1_000); // an aborted call counts no more bytes
    largest.release();
    expect(budget.bytes).toBe(75);
  });

  it('releases the bytes of each call of a principal separately', () => {
    const budget = new ByteBudget(100);
    const [first, second] = [
      budget.track('a', () => undefined),
      budget.track('a', () => undefined),
    ];
    first.add(30);
    second.add(50);
    first.release();
    expect([budget.getBytes('a'), budget.bytes]).toEqual([50, 50]);
    second.release();
    expect([budget.getBytes('a'), budget.bytes]).toEqual([0, 0]);
  });

  it('releases bytes once and runs onRelease', () => {
    let released = 0;
    const budget = new ByteBudget(100, () => (released += 1));
    const held = budget.track('a', () => undefined);
    held.add(10);
    held.add(-4);
    held.release();
    held.release();
    held.add(7);
    expect([budget.bytes, budget.getBytes('a'), released]).toEqual([0, 0, 2]);
  });
});

describe('StreamResetLimiter', () => {
  it('allows a burst of resets, then as many as the bucket refills', async () => {
    const clock = new ManualClock();
    const limit = new StreamResetLimiter(clock, { resetBurst: 3, resetsPerSecond: 2 });
    expect([1, 2, 3, 4].map(() => limit.tryReset())).toEqual([true, true, true, false]);
    await clock.advance(1_000);
    expect([1, 2].map(() => limit.tryReset())).toEqual([true, false]);
    await clock.advance(60_000);
    expect([1, 2, 3, 4].map(() => limit.tryReset())).toEqual([true, true, true, false]);
  });
});
