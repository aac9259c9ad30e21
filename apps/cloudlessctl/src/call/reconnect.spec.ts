import { Code, ConnectError } from '@connectrpc/connect';
import { toConnectError } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { Deadline, withReconnect, type ReconnectOptions } from './reconnect.js';

const lost = new ConnectError('no leader', Code.Unavailable);

/**
 * Creates a stream whose n-th attempt yields the texts of the n-th list and throws at its first
 * error. Further attempts repeat the last list.
 */
function openAttempts(attempts: readonly (readonly (string | Error)[])[]) {
  const startedAtMs: number[] = [];
  const clock = new ManualClock();
  const open = async function* (): AsyncGenerator<string> {
    startedAtMs.push(clock.now());
    for (const item of attempts[Math.min(startedAtMs.length, attempts.length) - 1] ?? []) {
      if (item instanceof Error) throw item;
      yield item;
    }
  };
  return { clock, open, startedAtMs };
}

/**
 * Reads the stream with {@link withReconnect} for at most 300 s of the clock.
 * @returns The items, the reported losses, the start time of each attempt in milliseconds after the
 *   first attempt, and the result: `ended`, `running` or the thrown error.
 */
async function run(
  attempts: readonly (readonly (string | Error)[])[],
  options: Partial<ReconnectOptions> = {},
) {
  const { clock, open, startedAtMs } = openAttempts(attempts);
  const losses: string[] = [];
  const items: string[] = [];
  const stop = new AbortController();
  let result: unknown = 'running';
  const reading = (async () => {
    for await (const item of withReconnect(open, {
      clock,
      signal: stop.signal,
      endless: false,
      onLost: async (reason) => void losses.push(reason),
      ...options,
    }))
      items.push(item);
  })();
  reading.then(
    () => (result = 'ended'),
    (reason: unknown) => (result = reason),
  );
  for (let turn = 0; turn < 6_000 && result === 'running'; turn += 1) {
    await settle();
    await clock.advance(50);
  }
  return { items, losses, result, startedAtMs: startedAtMs.map((ms) => ms - startedAtMs[0]!) };
}

const overloaded = toConnectError(
  new CloudlessError('SERVER_OVERLOADED', 'try again in 2 s', { retryAfterMs: 2_000 }),
);

describe('withReconnect', () => {
  it('continues with the next attempt after a connection error, and reports the loss once', async () => {
    expect(await run([['a', lost], [lost], ['b']])).toMatchObject({
      items: ['a', 'b'],
      losses: ['connection to the coordinator lost ([unavailable] no leader), reconnecting'],
      result: 'ended',
    });
  });

  it('reports a crash of the coordinator as a lost connection, not as a cancellation', async () => {
    const crash = new ConnectError(
      'http/2 stream closed with error code CANCEL (0x8)',
      Code.Canceled,
    );
    expect(await run([['a', crash], ['b']])).toMatchObject({
      items: ['a', 'b'],
      losses: ['connection to the coordinator lost, reconnecting'],
    });
  });

  it('does not retry the first attempt, unless the coordinator has answered before', async () => {
    expect(await run([[lost], ['a']])).toMatchObject({ items: [], losses: [], result: lost });
    expect(await run([[lost], ['a']], { hasAnswered: true })).toMatchObject({
      items: ['a'],
      result: 'ended',
    });
  });

  it('retries an error other than a connection error only when isRetriable returns true', async () => {
    const refused = new ConnectError('not found', Code.NotFound);
    expect(await run([['a', refused], ['b']])).toMatchObject({ items: ['a'], result: refused });
    expect(
      await run([['a', refused], ['b']], { isRetriable: (reason) => reason === refused }),
    ).toMatchObject({ items: ['a', 'b'], result: 'ended' });
  });

  it('waits as long as an overloaded coordinator says, and retries no other refusal of resources', async () => {
    expect(await run([['a', lost], [overloaded], ['b']])).toMatchObject({
      items: ['a', 'b'],
      startedAtMs: [0, 250, 2_250],
      result: 'ended',
    });
    const full = new ConnectError('the store is full', Code.ResourceExhausted);
    expect(await run([['a', full], ['b']])).toMatchObject({ items: ['a'], result: full });
  });

  it('doubles the delay from 250 ms up to 5 s, and gives up after a minute', async () => {
    const { result, startedAtMs } = await run([['a', lost], [lost]]);
    expect(result).toBe(lost);
    const delays = startedAtMs.slice(1).map((ms, index) => ms - startedAtMs[index]!);
    expect(delays.slice(0, 7)).toEqual([250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
    expect(startedAtMs.at(-1)).toBeGreaterThanOrEqual(60_000);
    expect(startedAtMs.at(-2)).toBeLessThan(60_000);
  });

  it('waits for an overloaded coordinator for longer than a minute', async () => {
    const refusals = Array.from({ length: 40 }, () => [overloaded]);
    const { items, losses, startedAtMs } = await run([['a', lost], ...refusals, ['b']]);
    expect({ items, losses }).toEqual({
      items: ['a', 'b'],
      losses: ['connection to the coordinator lost ([unavailable] no leader), reconnecting'],
    });
    expect(startedAtMs.at(-1)).toBeGreaterThan(120_000);
    // The minute begins with the last answer.
    const unreachable = await run([['a', lost], ...refusals, [lost]]);
    expect(unreachable.result).toBe(lost);
    expect(unreachable.startedAtMs.at(-1)! - startedAtMs.at(-1)!).toBeGreaterThanOrEqual(55_000);
  });

  it('starts with the shortest delay again after it has received an item', async () => {
    const { startedAtMs } = await run([['a', lost], [lost], ['b', lost], ['c']]);
    expect(startedAtMs).toEqual([0, 250, 750, 1_000]);
  });

  it('treats the end of an endless stream as a lost connection', async () => {
    const { items, losses, result } = await run([['a'], ['b'], [lost]], { endless: true });
    expect(items).toEqual(['a', 'b']);
    const notice =
      'connection to the coordinator lost (the coordinator ended the stream), reconnecting';
    expect(losses).toEqual([notice, notice]);
    expect(result).toBe(lost);
  });

  it('throws a connection error at once when the signal is aborted', async () => {
    const signal = AbortSignal.abort();
    expect(await run([['a', lost], ['b']], { signal })).toMatchObject({
      items: ['a'],
      losses: [],
      result: lost,
    });
  });
});

describe('Deadline', () => {
  it('aborts its signal when the time has expired, unless it is cancelled', async () => {
    const clock = new ManualClock();
    const parent = new AbortController();
    const deadline = new Deadline(clock, parent.signal, 1_000);
    const cancelled = new Deadline(clock, parent.signal, 1_000);
    cancelled.cancel();
    await clock.advance(999);
    expect([deadline.hasExpired, deadline.signal.aborted]).toEqual([false, false]);
    await clock.advance(1);
    expect([deadline.hasExpired, deadline.signal.aborted]).toEqual([true, true]);
    expect([cancelled.hasExpired, cancelled.signal.aborted]).toEqual([false, false]);
  });

  it('aborts its signal without having expired when the parent signal is aborted', () => {
    const parent = new AbortController();
    const deadline = new Deadline(new ManualClock(), parent.signal, undefined);
    parent.abort();
    expect([deadline.hasExpired, deadline.signal.aborted]).toEqual([false, true]);
  });
});
