import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Throttle, type Clock, type LeftOut } from '@cloudless/base';
import type { EventInit } from '@cloudless/cluster-state';

/** What may happen to one replica over and over. */
const FLAPPING = new Set([
  ...['ReplicaReady', 'ReplicaNotReady', 'ReplicaRestarted'],
  ...['ImagePulling', 'ImagePulled', 'ImagePullFailed'],
]);
/**
 * So many of one replica are told at once; from then on one at a time, which stands for those
 * before it.
 */
const BURST = 6;
const EVERY_MS = 60_000;
const MAX_REPLICAS = 10_000;

interface LeftOutEvent {
  readonly event: EventInit;
  readonly dueAtMs: number;
  /** It has had its turn already. */
  readonly passed: boolean;
}

/**
 * Keeps a replica that flaps from filling the list of events. The newest of what was left out is
 * told in the end, so that the list never ends on what is no longer true.
 */
export class FlappingEvents {
  private readonly throttle: Throttle;
  /** The newest that was left out, by node and replica. */
  private readonly newest = new Map<string, Map<string, LeftOutEvent>>();

  constructor(private readonly clock: Clock) {
    this.throttle = new Throttle({ clock, burst: BURST, everyMs: EVERY_MS, maxKeys: MAX_REPLICAS });
  }

  /** The event as it is to be told; undefined when it is left out for now. */
  admit(nodeId: string, event: EventInit): EventInit | undefined {
    const { reason = '', replicaId = '' } = event;
    if (!FLAPPING.has(reason)) {
      this.drop(nodeId, replicaId); // it has ended: how it came to that matters no more
      return event;
    }
    const throttled = this.throttle.take(replicaId);
    if (throttled.passes) {
      this.drop(nodeId, replicaId);
      return counted(event, throttled.left, 1);
    }
    this.keep(nodeId, { event, dueAtMs: this.clock.now() + throttled.waitMs, passed: false });
    return undefined;
  }

  /** What was left out of the replicas of a node and is due by now, at most `limit` of it. */
  due(nodeId: string, limit: number): readonly EventInit[] {
    const now = this.clock.now();
    const due: EventInit[] = [];
    for (const [replicaId, left] of [...(this.newest.get(nodeId) ?? [])]) {
      if (due.length >= limit) break;
      if (left.dueAtMs > now) continue;
      const turn = left.passed
        ? ({ passes: true, left: undefined } as const)
        : this.throttle.take(replicaId);
      if (turn.passes) {
        this.drop(nodeId, replicaId);
        due.push(counted(left.event, turn.left, 0));
      } else this.keep(nodeId, { ...left, dueAtMs: now + turn.waitMs });
    }
    return due;
  }

  /** What was due could not be told: it is due still, but for what something newer has replaced. */
  putBack(nodeId: string, events: readonly EventInit[]): void {
    for (const event of events) {
      if (this.newest.get(nodeId)?.has(event.replicaId ?? '') === true) continue;
      this.keep(nodeId, { event, dueAtMs: this.clock.now(), passed: true });
    }
  }

  /**
   * Milliseconds until {@link due} has something of the node; undefined when nothing is left out.
   */
  nextDueMs(nodeId: string): number | undefined {
    const left = this.newest.get(nodeId);
    if (left === undefined) return undefined;
    return Math.max(
      0,
      Math.min(...[...left.values()].map(({ dueAtMs }) => dueAtMs)) - this.clock.now(),
    );
  }

  private keep(nodeId: string, left: LeftOutEvent): void {
    const ofNode = this.newest.get(nodeId) ?? new Map<string, LeftOutEvent>();
    ofNode.set(left.event.replicaId ?? '', left);
    this.newest.set(nodeId, ofNode);
  }

  private drop(nodeId: string, replicaId: string): void {
    const ofNode = this.newest.get(nodeId);
    ofNode?.delete(replicaId);
    if (ofNode?.size === 0) this.newest.delete(nodeId);
  }
}

/** @param more - That are not among those left out. */
function counted(event: EventInit, left: LeftOut | undefined, more: number): EventInit {
  const count = (left?.count ?? 0) + more;
  return left === undefined || count <= 1
    ? event
    : { ...event, count, firstTime: timestampFromMs(left.sinceMs) };
}
