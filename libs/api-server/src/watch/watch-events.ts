import { create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import {
  WatchEventsResponseSchema,
  type Event,
  type Event_Category,
  type Event_Severity,
  type WatchEventsRequest,
  type WatchEventsResponse,
} from '@cloudless/api';
import { CloudlessError, InvalidInputError, type Clock, type StopSignal } from '@cloudless/base';
import type { ClusterState, ClusterView, HistoricChanges } from '@cloudless/cluster-state';
import { BOOKMARK_MS } from './wakeup.js';

/**
 * Returns a predicate for the events that a request selects. An empty field selects every event.
 */
export function createEventFilter(request: {
  readonly namespace: string;
  readonly workload: string;
  readonly nodeId: string;
  readonly categories: readonly Event_Category[];
  readonly reasons: readonly string[];
  readonly severities: readonly Event_Severity[];
  readonly since?: Timestamp | undefined;
}): (event: Event) => boolean {
  const { namespace, workload, nodeId, categories, severities } = request;
  const reasons = request.reasons.map((reason) => reason.toLowerCase());
  const sinceMs = request.since === undefined ? undefined : timestampMs(request.since);
  return (event) =>
    (namespace === '' || event.namespace === namespace) &&
    (workload === '' || event.workload === workload) &&
    (nodeId === '' || event.nodeId === nodeId) &&
    (categories.length === 0 || categories.includes(event.category)) &&
    (severities.length === 0 || severities.includes(event.severity)) &&
    (reasons.length === 0 || reasons.includes(event.reason.toLowerCase())) &&
    (sinceMs === undefined || event.time === undefined || timestampMs(event.time) >= sinceMs);
}

/** An event id: epoch and number within the epoch, zero-padded so that ids sort by age. */
const EVENT_ID = /^\d{10,20}-\d{10,20}$/;

/**
 * Streams every event after `after_id` or `after_revision`, or every new event when the request has
 * neither, with a bookmark after the past events and after each 15 s of silence. No event is
 * skipped: the watch reads the changes that all watches share, or further in the past the history of
 * the store, at the speed of the client.
 * @param isVisible - Returns true for the namespaces whose events are sent; empty in its argument for
 *   events that belong to no namespace. Default: all events.
 * @throws kind `invalid` for a malformed `after_id`, and for `after_id` with `after_revision`;
 *   `compacted` when an event after the position may have been removed, or the history does not
 *   contain the requested revision, or has not reached it.
 */
export async function* watchEvents(
  { state, clock }: { readonly state: ClusterState; readonly clock: Clock },
  request: WatchEventsRequest,
  signal: StopSignal,
  isVisible: (namespace: string) => boolean = () => true,
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
  const isSelected = createEventFilter(request);
  const matchesRequest = (event: Event): boolean => isVisible(event.namespace) && isSelected(event);
  if (request.afterRevision > 0n) await state.checkRevision(request.afterRevision);
  const view = state.view();
  const { revision: startRevision } = view;
  if (request.afterId !== '') checkNotRemoved(view, request);
  const pastEvents =
    request.afterId === ''
      ? []
      : listEventsAfter(view, request.afterId, startRevision).filter(({ event }) =>
          matchesRequest(event),
        );
  const stopping = new AbortController();
  const stop = (): void => stopping.abort();
  signal.addEventListener('abort', stop);
  if (signal.aborted) stop();
  let changes: AsyncGenerator<HistoricChanges> | undefined;
  try {
    for (const { event, revision } of pastEvents)
      yield create(WatchEventsResponseSchema, { event, revision });
    let position = request.afterRevision > 0n ? request.afterRevision : startRevision;
    changes = state.changesAfter(position, ['event'], stopping.signal);
    let next = prefetch(changes);
    // Undefined until all past events were sent: the first bookmark follows them.
    let bookmarkAtMs = position < startRevision ? undefined : clock.now();
    for (;;) {
      if (bookmarkAtMs !== undefined && clock.now() >= bookmarkAtMs) {
        yield create(WatchEventsResponseSchema, { revision: position });
        bookmarkAtMs = clock.now() + BOOKMARK_MS;
      }
      const turn = await nextOrSilence(clock, next, bookmarkAtMs);
      if (turn === 'silence') continue;
      if (turn.done === true) return;
      next = prefetch(changes);
      const { revision } = turn.value;
      const events = toEvents(turn.value).filter(matchesRequest);
      for (const [index, event] of events.entries()) {
        // Only the last event of a commit has the revision of the commit. A watch that is resumed
        // after an earlier event of the commit then receives the other events.
        const isLastOfCommit = index === events.length - 1;
        yield create(WatchEventsResponseSchema, {
          event,
          revision: isLastOfCommit ? revision : revision - 1n,
        });
        bookmarkAtMs = bookmarkAtMs === undefined ? undefined : clock.now() + BOOKMARK_MS;
      }
      position = revision;
      if (bookmarkAtMs === undefined && position >= startRevision) bookmarkAtMs = clock.now();
    }
  } finally {
    stop();
    // When a prefetched item has arrived already, the signal does not end the generator.
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
 * Returns the stored events after an id, each with the revision at which a watch can be resumed
 * after this event.
 * @param viewRevision - Revision of `view`.
 */
function listEventsAfter(view: ClusterView, afterId: string, viewRevision: bigint) {
  // Events are sorted by id, so the search starts at the end.
  const events = view.events();
  let start = events.length;
  while (start > 0 && (events[start - 1]?.id ?? '') > afterId) start -= 1;
  return events.slice(start).map((event, index, all) => {
    const next = all[index + 1];
    return {
      event,
      revision:
        next === undefined ? viewRevision : (view.event(next.id)?.revision ?? viewRevision) - 1n,
    };
  });
}

function toEvents({ changes }: HistoricChanges): readonly Event[] {
  return changes.flatMap(({ after }) => (after === undefined ? [] : [after as Event]));
}

/**
 * Requests the next item of a generator before the item is needed. Prevents an unhandled rejection
 * when the reader leaves before the item arrives.
 */
function prefetch<Item>(items: AsyncGenerator<Item>): Promise<IteratorResult<Item>> {
  const next = items.next();
  next.catch(() => undefined);
  return next;
}

/**
 * Waits for the result of `work`.
 * @param silentAtMs - Time on the monotonic clock at which `silence` is returned; undefined: never.
 */
function nextOrSilence<Result>(
  clock: Clock,
  work: Promise<Result>,
  silentAtMs: number | undefined,
): Promise<Result | 'silence'> {
  if (silentAtMs === undefined) return work;
  return new Promise((resolve, reject) => {
    const timer = clock.setTimer(Math.max(0, silentAtMs - clock.now()), () => resolve('silence'));
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}
