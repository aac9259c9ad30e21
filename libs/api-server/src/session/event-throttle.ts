import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Throttle, type Clock, type SuppressedEvents } from '@cloudless/base';
import type { EventInit } from '@cloudless/cluster-state';

/** Reasons of events that one replica can repeat without end. */
const FLAPPING = new Set([
  ...['ReplicaReady', 'ReplicaNotReady', 'ReplicaRestarted'],
  ...['ImagePulling', 'ImagePulled', 'ImagePullFailed'],
]);
/**
 * Events of one replica that are emitted at once. Later ones are merged, at most one event every
 * {@link EVERY_MS}.
 */
const BURST = 6;
const EVERY_MS = 60_000;
const MAX_REPLICAS = 10_000;

interface SuppressedEvent {
  readonly event: EventInit;
  readonly dueAtMs: number;
  /** The rate limit has admitted the event already. */
  readonly passed: boolean;
}

/**
 * Limits the rate of events about a replica whose state changes again and again. The newest
 * suppressed event is emitted later, so that the last event in the list describes the current
 * state.
 */
export class EventThrottle {
  private readonly throttle: Throttle;
  /** The newest suppressed event, by node and replica. */
  private readonly suppressed = new Map<string, Map<string, SuppressedEvent>>();

  constructor(private readonly clock: Clock) {
    this.throttle = new Throttle({ clock, burst: BURST, everyMs: EVERY_MS, maxKeys: MAX_REPLICAS });
  }

  /**
   * Returns the event to emit, with the number of suppressed events; undefined when this event is
   * suppressed for now.
   */
  admit(nodeId: string, event: EventInit): EventInit | undefined {
    const { reason = '', replicaId = '' } = event;
    if (!FLAPPING.has(reason)) {
      // the replica has ended, so earlier readiness events are obsolete
      this.discard(nodeId, replicaId);
      return event;
    }
    const throttled = this.throttle.take(replicaId);
    if (throttled.passes) {
      this.discard(nodeId, replicaId);
      return withCount(event, throttled.left, 1);
    }
    this.keep(nodeId, { event, dueAtMs: this.clock.now() + throttled.waitMs, passed: false });
    return undefined;
  }

  /** Removes and returns the suppressed events of a node that are due, at most `limit`. */
  takeDue(nodeId: string, limit: number): readonly EventInit[] {
    const now = this.clock.now();
    const due: EventInit[] = [];
    for (const [replicaId, left] of [...(this.suppressed.get(nodeId) ?? [])]) {
      if (due.length >= limit) break;
      if (left.dueAtMs > now) continue;
      const turn = left.passed
        ? ({ passes: true, left: undefined } as const)
        : this.throttle.take(replicaId);
      if (turn.passes) {
        this.discard(nodeId, replicaId);
        due.push(withCount(left.event, turn.left, 0));
      } else this.keep(nodeId, { ...left, dueAtMs: now + turn.waitMs });
    }
    return due;
  }

  /**
   * Puts back events that could not be committed. An event is dropped when a newer one of the same
   * replica has been suppressed meanwhile.
   */
  requeue(nodeId: string, events: readonly EventInit[]): void {
    for (const event of events) {
      if (this.suppressed.get(nodeId)?.has(event.replicaId ?? '') === true) continue;
      this.keep(nodeId, { event, dueAtMs: this.clock.now(), passed: true });
    }
  }

  /**
   * Returns the milliseconds until {@link takeDue} returns an event of the node; undefined when no
   * event is suppressed.
   */
  getNextDueMs(nodeId: string): number | undefined {
    const left = this.suppressed.get(nodeId);
    if (left === undefined) return undefined;
    return Math.max(
      0,
      Math.min(...[...left.values()].map(({ dueAtMs }) => dueAtMs)) - this.clock.now(),
    );
  }

  private keep(nodeId: string, left: SuppressedEvent): void {
    const ofNode = this.suppressed.get(nodeId) ?? new Map<string, SuppressedEvent>();
    ofNode.set(left.event.replicaId ?? '', left);
    this.suppressed.set(nodeId, ofNode);
  }

  private discard(nodeId: string, replicaId: string): void {
    const ofNode = this.suppressed.get(nodeId);
    ofNode?.delete(replicaId);
    if (ofNode?.size === 0) this.suppressed.delete(nodeId);
  }
}

/** @param more - Number of suppressed events that `left` does not contain. */
function withCount(event: EventInit, left: SuppressedEvents | undefined, more: number): EventInit {
  const count = (left?.count ?? 0) + more;
  return left === undefined || count <= 1
    ? event
    : { ...event, count, firstTime: timestampFromMs(left.sinceMs) };
}
