import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  PASSES,
  Throttle,
  type Clock,
  type SuppressedEvents,
  type ThrottleResult,
} from '@cloudless/base';
import type { EventInit } from '@cloudless/cluster-state';
import { READY } from './report-events.js';

/** Reasons of events that a replica can cause again and again. Only these events are limited. */
const REPEATABLE_REASONS = new Set([
  ...[READY, 'ReplicaNotReady', 'ReplicaRestarted'],
  ...['ImagePulling', 'ImagePulled', 'ImagePullFailed'],
]);
/**
 * Events of one replica that are emitted at once: enough for an image pull, readiness and a few
 * restarts. Later events are merged into at most one event every {@link MERGE_MS}.
 */
const BURST = 6;
const MERGE_MS = 60_000;
/** Replicas whose rate is known, a bound on memory. A forgotten replica may emit a burst again. */
const MAX_REPLICAS = 10_000;

/** The newest suppressed event of one replica. */
interface SuppressedEvent {
  readonly event: EventInit;
  /** Time on the monotonic clock from which the event may be emitted. */
  readonly dueAtMs: number;
  /** True when the rate limit has passed the event already, and its commit failed. */
  readonly passed: boolean;
}

/**
 * Limits the rate of events about a replica whose readiness, container or image pull changes again
 * and again. The newest suppressed event of a replica is emitted later, so that the last event in
 * the list describes the current state.
 */
export class EventThrottle {
  private readonly throttle: Throttle;
  /** The newest suppressed event, by node and replica. */
  private readonly suppressed = new Map<string, Map<string, SuppressedEvent>>();
  /** Replicas with an event of {@link takeDue} that no newer event has made obsolete. */
  private readonly taken = new Set<string>();

  constructor(private readonly clock: Clock) {
    this.throttle = new Throttle({ clock, burst: BURST, everyMs: MERGE_MS, maxKeys: MAX_REPLICAS });
  }

  /**
   * Returns the event to emit, with the number of suppressed events; undefined when this event is
   * suppressed for now.
   */
  admit(nodeId: string, event: EventInit): EventInit | undefined {
    const { reason = '', replicaId = '' } = event;
    return this.emitOrKeep(nodeId, event, this.countEvent(nodeId, reason, replicaId));
  }

  /**
   * Counts an event of a replica before the event is created, for a caller that may need no event
   * of its own. Call {@link emitOrKeep} with the result, unless the event passes and none was
   * suppressed before. Without that call after a refusal, the event is lost.
   */
  countEvent(nodeId: string, reason: string, replicaId: string): ThrottleResult {
    if (this.taken.size > 0) this.taken.delete(replicaId);
    // Other reasons mean that the replica has ended, so its suppressed events are obsolete.
    const throttled = REPEATABLE_REASONS.has(reason) ? this.throttle.take(replicaId) : PASSES;
    if (throttled.passes) this.discard(nodeId, replicaId);
    return throttled;
  }

  /**
   * Returns the event with the number of suppressed events when the rate permits the event;
   * otherwise keeps the event until it is due.
   * @param throttled - The result of {@link countEvent} for this event.
   * @returns As {@link admit}.
   */
  emitOrKeep(nodeId: string, event: EventInit, throttled: ThrottleResult): EventInit | undefined {
    if (throttled.passes) return withCount(event, throttled.suppressed, 1);
    this.keep(nodeId, { event, dueAtMs: this.clock.now() + throttled.waitMs, passed: false });
    return undefined;
  }

  /**
   * Removes and returns the suppressed events of a node that are due, at most `limit`. Call
   * {@link confirm} when they are committed, and {@link requeue} when they cannot be committed.
   */
  takeDue(nodeId: string, limit: number): readonly EventInit[] {
    const now = this.clock.now();
    const due: EventInit[] = [];
    for (const [replicaId, suppressed] of [...(this.suppressed.get(nodeId) ?? [])]) {
      if (due.length >= limit) break;
      if (suppressed.dueAtMs > now) continue;
      const throttled = suppressed.passed ? PASSES : this.throttle.take(replicaId);
      if (throttled.passes) {
        this.discard(nodeId, replicaId);
        this.taken.add(replicaId);
        due.push(withCount(suppressed.event, throttled.suppressed, 0));
      } else this.keep(nodeId, { ...suppressed, dueAtMs: now + throttled.waitMs });
    }
    return due;
  }

  /** Ends the handling of events of {@link takeDue} that are committed. */
  confirm(events: readonly EventInit[]): void {
    for (const { replicaId = '' } of events) this.taken.delete(replicaId);
  }

  /**
   * Puts back events of {@link takeDue} that could not be committed. An event is dropped when there
   * has been a newer event of the same replica, emitted or suppressed, meanwhile.
   */
  requeue(nodeId: string, events: readonly EventInit[]): void {
    for (const event of events) {
      if (!this.taken.delete(event.replicaId ?? '')) continue;
      this.keep(nodeId, { event, dueAtMs: this.clock.now(), passed: true });
    }
  }

  /**
   * Returns the milliseconds until {@link takeDue} returns an event of the node; undefined when no
   * event is suppressed.
   */
  getNextDueMs(nodeId: string): number | undefined {
    const suppressed = this.suppressed.get(nodeId);
    if (suppressed === undefined) return undefined;
    return Math.max(
      0,
      Math.min(...[...suppressed.values()].map(({ dueAtMs }) => dueAtMs)) - this.clock.now(),
    );
  }

  private keep(nodeId: string, suppressed: SuppressedEvent): void {
    const byReplica = this.suppressed.get(nodeId) ?? new Map<string, SuppressedEvent>();
    byReplica.set(suppressed.event.replicaId ?? '', suppressed);
    this.suppressed.set(nodeId, byReplica);
  }

  private discard(nodeId: string, replicaId: string): void {
    if (this.suppressed.size === 0) return;
    const byReplica = this.suppressed.get(nodeId);
    byReplica?.delete(replicaId);
    if (byReplica?.size === 0) this.suppressed.delete(nodeId);
  }
}

/**
 * Adds to an event the number of events that it stands for.
 * @param suppressed - The events that were suppressed before.
 * @param additional - 1 when `event` was not suppressed itself, otherwise 0.
 */
function withCount(
  event: EventInit,
  suppressed: SuppressedEvents | undefined,
  additional: 0 | 1,
): EventInit {
  const count = (suppressed?.count ?? 0) + additional;
  return suppressed === undefined || count <= 1
    ? event
    : { ...event, count, firstTime: timestampFromMs(suppressed.sinceMs) };
}
