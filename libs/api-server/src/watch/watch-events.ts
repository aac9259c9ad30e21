import { create } from '@bufbuild/protobuf';
import {
  WatchEventsResponseSchema,
  type Event,
  type Event_Category,
  type WatchEventsRequest,
  type WatchEventsResponse,
} from '@cloudless/api';
import { CloudlessError, InvalidInputError, type Clock, type StopSignal } from '@cloudless/base';
import type { ClusterState, ClusterView, HistoricChanges } from '@cloudless/cluster-state';
import { BOOKMARK_MS } from './wakeup.js';

/** Returns a predicate for the events that the request selects. Empty fields select all. */
export function createEventFilter(request: {
  readonly namespace: string;
  readonly workload: string;
  readonly nodeId: string;
  readonly categories: readonly Event_Category[];
}): (event: Event) => boolean {
  const { namespace, workload, nodeId, categories } = request;
  return (event) =>
    (namespace === '' || event.namespace === namespace) &&
    (workload === '' || event.workload === workload) &&
    (nodeId === '' || event.nodeId === nodeId) &&
    (categories.length === 0 || categories.includes(event.category));
}

/**
 * Ids of events as the cluster state makes them: epoch and count, zero-padded so that they sort.
 */
const EVENT_ID = /^\d{10,20}-\d{10,20}$/;

/**
 * Streams every event from a point on. Unlike a state, an event cannot be derived from a newer one,
 * so no event is skipped: the watch reads the history of the store at the speed of the client.
 * @throws kind `invalid` for a malformed `after_id`, and for both positions together; `compacted`
 *   when the history does not contain the requested revision any more, or has not reached it.
 */
export async function* watchEvents(
  { state, clock }: { readonly state: ClusterState; readonly clock: Clock },
  request: WatchEventsRequest,
  signal: StopSignal,
): AsyncGenerator<WatchEventsResponse> {
  if (request.afterId !== '' && request.afterRevision > 0n) {
    throw new InvalidInputError([
      { field: 'after_revision', message: 'cannot be combined with after_id' },
    ]);
  }
  if (request.afterId !== '' && !EVENT_ID.test(request.afterId)) {
    const message = `is not the id of an event: ${JSON.stringify(request.afterId)}; pass the id of a received event`;
    throw new InvalidInputError([{ field: 'after_id', message }]);
  }
  const wanted = createEventFilter(request);
  if (request.afterRevision > 0n) await state.checkRevision(request.afterRevision);
  const view = state.view();
  const { revision: present } = view;
  if (request.afterId !== '') checkNotRemoved(view, request);
  const kept =
    request.afterId === ''
      ? []
      : listEventsAfter(view, request.afterId, present).filter(({ event }) => wanted(event));
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  signal.addEventListener('abort', stop);
  if (signal.aborted) stop();
  let changes: AsyncGenerator<HistoricChanges> | undefined;
  try {
    for (const { event, revision } of kept)
      yield create(WatchEventsResponseSchema, { event, revision });
    let position = request.afterRevision > 0n ? request.afterRevision : present;
    changes = state.changesAfter(position, ['event'], stopping.signal);
    let next = prefetch(changes);
    let bookmarkAt = position < present ? undefined : clock.now();
    for (;;) {
      // The first bookmark follows when all past events have been sent.
      if (bookmarkAt !== undefined && clock.now() >= bookmarkAt) {
        yield create(WatchEventsResponseSchema, { revision: position });
        bookmarkAt = clock.now() + BOOKMARK_MS;
      }
      const turn = await nextOrSilence(clock, next, bookmarkAt);
      if (turn === 'silence') continue;
      if (turn.done === true) return;
      next = prefetch(changes);
      const { revision } = turn.value;
      const events = toEvents(turn.value).filter(wanted);
      for (const [index, event] of events.entries()) {
        const complete = index === events.length - 1;
        yield create(WatchEventsResponseSchema, {
          event,
          revision: complete ? revision : revision - 1n,
        });
        bookmarkAt = bookmarkAt === undefined ? undefined : clock.now() + BOOKMARK_MS;
      }
      position = revision;
      if (bookmarkAt === undefined && position >= present) bookmarkAt = clock.now();
    }
  } finally {
    stop();
    // A prefetched item may have arrived already; then only this call ends the generator.
    void changes?.return(undefined).catch(() => undefined);
    signal.removeEventListener('abort', stop);
  }
}

/** @throws kind `compacted` when an event that the watch would have sent may have been removed. */
function checkNotRemoved(view: ClusterView, { afterId, categories }: WatchEventsRequest): void {
  const newest = view.removedEvents()?.value.newestByCategory ?? {};
  const removed = Object.entries(newest)
    .filter(([category]) => categories.length === 0 || categories.includes(Number(category)))
    .map(([, id]) => id)
    .find((id) => id > afterId);
  if (removed === undefined) return;
  throw new CloudlessError(
    'compacted',
    `events after ${afterId} are no longer stored: ${removed} was removed; list the stored events, or watch without after_id`,
  );
}

/**
 * Returns the stored events after an id, each with the revision at which a watch that has sent it
 * is resumed.
 */
function listEventsAfter(view: ClusterView, afterId: string, present: bigint) {
  // Events are sorted by id, so the search starts at the end.
  const events = view.events();
  let start = events.length;
  while (start > 0 && (events[start - 1]?.id ?? '') > afterId) start -= 1;
  return events.slice(start).map((event, index, all) => {
    const next = all[index + 1];
    return {
      event,
      revision: next === undefined ? present : (view.event(next.id)?.revision ?? present) - 1n,
    };
  });
}

function toEvents({ changes }: HistoricChanges): readonly Event[] {
  return changes.flatMap(({ after }) => (after === undefined ? [] : [after as Event]));
}

/**
 * Requests the next item of a generator before it is needed. A rejection after the reader has left
 * is ignored.
 */
function prefetch<Item>(items: AsyncGenerator<Item>): Promise<IteratorResult<Item>> {
  const next = items.next();
  next.catch(() => undefined);
  return next;
}

/** @param silentAt - Time at which to return `silence`; undefined: wait without limit. */
function nextOrSilence<Result>(
  clock: Clock,
  work: Promise<Result>,
  silentAt: number | undefined,
): Promise<Result | 'silence'> {
  if (silentAt === undefined) return work;
  return new Promise((resolve, reject) => {
    const timer = clock.setTimer(Math.max(0, silentAt - clock.now()), () => resolve('silence'));
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}
