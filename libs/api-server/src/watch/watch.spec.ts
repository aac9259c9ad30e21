import { create } from '@bufbuild/protobuf';
import { EventSchema, WatchEventsRequestSchema } from '@cloudless/api';
import { ManualClock, settle } from '@cloudless/base/testing';
import { CloudlessError } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import { ChangeQueue, type QueueTurn } from './change-queue.js';
import { SLOW_READER_TIMEOUT_MS, withSlowReaderTimeout } from './slow-reader-timeout.js';
import { watchEvents } from './watch-events.js';

const never = new AbortController().signal;

describe('ChangeQueue', () => {
  it('returns each key once in the order of its first change, with the revision delivered so far', async () => {
    const clock = new ManualClock();
    const queue = new ChangeQueue();
    const taken: string[] = [];
    const takeNext = async (): Promise<void> => {
      const turn = await queue.next(clock, never, 1_000);
      taken.push(
        `${turn.kind === 'key' ? turn.key : turn.kind} ${queue.getDeliveredRevision(20n)}`,
      );
    };
    queue.mark('a', 10n);
    queue.mark('b', 12n);
    queue.mark('a', 14n);
    queue.putBefore([
      ['c', 5n],
      ['b', 7n],
      ['c', 9n],
    ]);
    expect(queue.getDeliveredRevision(20n)).toBe(4n);
    for (let turn = 0; turn < 3; turn += 1) await takeNext();
    queue.mark('c', 21n);
    await takeNext();
    expect(taken).toEqual(['c 6', 'b 9', 'a 20', 'c 20']);
  });

  it('returns a key that is marked during the wait, then silence, and fails after `fail` once it is empty', async () => {
    const clock = new ManualClock();
    const queue = new ChangeQueue();
    const stopping = new AbortController();
    const turns: QueueTurn[] = [];
    const reading = (async () => {
      for (
        let turn = await queue.next(clock, stopping.signal, clock.now() + 100);
        turn.kind !== 'stopped';
      ) {
        turns.push(turn);
        turn = await queue.next(clock, stopping.signal, clock.now() + 100);
      }
    })();
    await clock.advance(99);
    queue.mark('a', 1n);
    await clock.advance(99);
    expect(turns).toEqual([{ kind: 'key', key: 'a' }]);
    await clock.advance(1);
    expect(turns).toEqual([{ kind: 'key', key: 'a' }, { kind: 'silence' }]);
    stopping.abort();
    await reading;
    expect(clock.pendingTimers).toBe(0);
    queue.mark('b', 2n);
    queue.fail(new CloudlessError('unavailable', 'over'));
    expect(await queue.next(clock, never, 10_000)).toEqual({ kind: 'key', key: 'b' });
    await expect(queue.next(clock, never, 10_000)).rejects.toMatchObject({ kind: 'unavailable' });
  });
});

describe('watchEvents', () => {
  it('stops reading the history when its client leaves while more events wait', async () => {
    let isHistoryClosed = false;
    async function* changesAfter() {
      try {
        for (let revision = 1n; ; revision += 1n) {
          const after = create(EventSchema, { id: String(revision) });
          yield { revision, changes: [{ kind: 'event', id: after.id, after }] };
        }
      } finally {
        isHistoryClosed = true;
      }
    }
    const state = { view: () => ({ revision: 0n }), changesAfter } as unknown as ClusterState;
    for await (const { event } of watchEvents(
      { state, clock: new ManualClock() },
      create(WatchEventsRequestSchema),
      never,
    )) {
      if (event !== undefined) break;
    }
    await settle();
    expect(isHistoryClosed).toBe(true);
  });
});

describe('withSlowReaderTimeout', () => {
  const watch = (clock: ManualClock) => {
    const seen = { freed: false };
    const items = (async function* () {
      try {
        for (let revision = 1n; ; revision += 1n) yield { revision };
      } finally {
        seen.freed = true;
      }
    })();
    return { seen, reader: withSlowReaderTimeout(items, clock)[Symbol.asyncIterator]() };
  };

  it('keeps a watch open whose client reads within the timeout', async () => {
    const clock = new ManualClock();
    const { reader, seen } = watch(clock);
    for (let count = 0; count < 5; count += 1) {
      await reader.next();
      await clock.advance(SLOW_READER_TIMEOUT_MS - 1);
    }
    expect(await reader.next()).toEqual({ done: false, value: { revision: 6n } });
    await reader.return?.();
    expect({ ...seen, timers: clock.pendingTimers }).toEqual({ freed: true, timers: 0 });
  });

  it('closes the watch of a client that does not read, and reports the revision to resume at', async () => {
    const clock = new ManualClock();
    const { reader, seen } = watch(clock);
    await reader.next();
    await reader.next();
    await clock.advance(SLOW_READER_TIMEOUT_MS);
    await settle();
    expect({ ...seen, timers: clock.pendingTimers }).toEqual({ freed: true, timers: 0 });
    await expect(reader.next()).rejects.toMatchObject({
      kind: 'exhausted',
      message:
        'the watch was closed because the client read nothing for 20 s; resume with after_revision 2',
    });
  });
});
