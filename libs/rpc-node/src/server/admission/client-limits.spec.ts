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

  it('refuses streams above the limits of a principal and of the server, and releases each once', () => {
    const limiter = new StreamLimiter(limits);
    const end = limiter.acquire('read', 'a', '192.0.2.1');
    limiter.acquire('write', 'a', '192.0.2.1');
    expect(() => limiter.acquire('read', 'a', '192.0.2.1')).toThrow(
      'this client has 2 streams open, the limit of one client; close some first',
    );
    limiter.acquire('read', 'b', '192.0.2.2');
    expect(() => limiter.acquire('read', 'c', '192.0.2.3')).toThrow(
      expect.objectContaining({
        code: Code.ResourceExhausted,
        rawMessage: 'the server has 3 streams open, its limit; try again later',
      }),
    );
    end();
    end();
    expect([limiter.openStreams, limiter.refusedStreams]).toEqual([2, 2]);
    limiter.acquire('read', 'c', '192.0.2.3');
  });

  it('lets a principal at its limit open one stream after one of its streams has ended', () => {
    const limiter = new StreamLimiter(limits);
    const release = limiter.acquire('read', 'a', '192.0.2.1');
    limiter.acquire('read', 'a', '192.0.2.1');
    release();
    limiter.acquire('read', 'a', '192.0.2.1');
    expect(() => limiter.acquire('read', 'a', '192.0.2.1')).toThrow('the limit of one client');
  });

  it('refuses streams above the limit of an address, over all clients of the address', () => {
    const limiter = new StreamLimiter({ ...limits, streams: 9 });
    const ends = ['a', 'b', 'c'].map((principal) =>
      limiter.acquire('read', principal, '192.0.2.1'),
    );
    expect(() => limiter.acquire('read', 'd', '192.0.2.1')).toThrow(
      expect.objectContaining({
        code: Code.ResourceExhausted,
        rawMessage:
          'clients at 192.0.2.1 have 3 streams open, the limit of one address; close some first',
      }),
    );
    limiter.acquire('read', 'e', '192.0.2.2');
    ends[0]?.();
    ends[0]?.();
    limiter.acquire('read', 'd', '192.0.2.1');
    expect(() => limiter.acquire('read', 'f', '192.0.2.1')).toThrow('the limit of one address');
    expect(limiter.openStreams).toBe(4);
  });

  it('limits control streams by principal only, not by address or in total', () => {
    const limiter = new StreamLimiter({ ...limits, streams: 0 });
    const end = limiter.acquire('control', 'a', '192.0.2.1');
    expect(() => limiter.acquire('control', 'a', '192.0.2.1')).toThrow('1 streams open');
    end();
    for (const agent of ['a', 'b', 'c', 'd']) limiter.acquire('control', agent, '192.0.2.1');
    expect(limiter.openStreams).toBe(0);
  });
});

describe('toPeerKey', () => {
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
  ])('returns one key for $name', ({ addresses }) => {
    expect(new Set(addresses.map(toPeerKey)).size).toBe(1);
  });

  it.each([
    { name: 'IPv4', addresses: ['192.0.2.1', '192.0.2.2'] },
    { name: 'IPv6', addresses: ['2001:db8:0:1::1', '2001:db8:0:2::1'] },
  ])('returns different keys for different $name addresses', ({ addresses }) => {
    expect(new Set(addresses.map(toPeerKey)).size).toBe(2);
  });
});

describe('ByteBudget', () => {
  it('aborts the largest call of the principal that holds the most when the budget is exceeded', () => {
    const aborted: string[] = [];
    const budget = new ByteBudget(100);
    const hold = (principal: string, name: string, bytes: number) => {
      const trackedBytes = budget.track(principal, () => aborted.push(name));
      trackedBytes.add(bytes);
      return trackedBytes;
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

  it('releases bytes once, and runs onRelease after each release', () => {
    let releases = 0;
    const budget = new ByteBudget(100, () => (releases += 1));
    const trackedBytes = budget.track('a', () => undefined);
    trackedBytes.add(10);
    trackedBytes.add(-4);
    trackedBytes.release();
    trackedBytes.release();
    trackedBytes.add(7);
    expect([budget.bytes, budget.getBytes('a'), releases]).toEqual([0, 0, 2]);
  });
});

describe('StreamResetLimiter', () => {
  it('allows resetBurst resets at once, then resetsPerSecond in each second', async () => {
    const clock = new ManualClock();
    const limiter = new StreamResetLimiter(clock, { resetBurst: 3, resetsPerSecond: 2 });
    expect([1, 2, 3, 4].map(() => limiter.tryReset())).toEqual([true, true, true, false]);
    await clock.advance(1_000);
    expect([1, 2].map(() => limiter.tryReset())).toEqual([true, false]);
    await clock.advance(60_000);
    expect([1, 2, 3, 4].map(() => limiter.tryReset())).toEqual([true, true, true, false]);
  });
});
