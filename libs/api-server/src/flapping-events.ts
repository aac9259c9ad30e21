import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Throttle, type Clock, type LeftOut } from '@cloudless/base';
import type { EventInit } from '@cloudless/cluster-state';

/** What may happen to one replica over and over. */
const FLAPPING = new Set(['ReplicaReady', 'ReplicaNotReady', 'ReplicaRestarted']);
/** So many of one replica are told at once; from then on one at a time, which stands for those before it. */
const BURST = 6;
const EVERY_MS = 60_000;
const MAX_REPLICAS = 10_000;

interface LeftOutEvent {
  readonly event: EventInit;
  readonly nodeId: string;
  readonly dueAtMs: number;
}

/**
 * Keeps a replica that flaps from filling the list of events. The newest of what was left out is told in the end, so that the list
 * never ends on what is no longer true.
 */
export class FlappingEvents {
  private readonly throttle: Throttle;
  /** The newest that was left out, by replica. */
  private readonly newest = new Map<string, LeftOutEvent>();

  constructor(private readonly clock: Clock) {
    this.throttle = new Throttle({ clock, burst: BURST, everyMs: EVERY_MS, maxKeys: MAX_REPLICAS });
  }

  /** The event as it is to be told; undefined when it is left out for now. */
  admit(nodeId: string, event: EventInit): EventInit | undefined {
    const { reason = '', replicaId = '' } = event;
    if (!FLAPPING.has(reason)) {
      this.newest.delete(replicaId); // it has ended: how it came to that matters no more
      return event;
    }
    const throttled = this.throttle.take(replicaId);
    if (throttled.passes) {
      this.newest.delete(replicaId);
      return counted(event, throttled.left, 1);
    }
    this.newest.set(replicaId, { event, nodeId, dueAtMs: this.clock.now() + throttled.waitMs });
    return undefined;
  }

  /** What was left out of the replicas of a node, and is due by now. */
  due(nodeId: string): readonly EventInit[] {
    const now = this.clock.now();
    return [...this.newest].flatMap(([replicaId, left]) => {
      if (left.nodeId !== nodeId || left.dueAtMs > now) return [];
      const throttled = this.throttle.take(replicaId);
      if (!throttled.passes) return [];
      this.newest.delete(replicaId);
      return counted(left.event, throttled.left, 0);
    });
  }

  /** Milliseconds until {@link due} has something of the node; undefined when nothing is left out. */
  nextDueMs(nodeId: string): number | undefined {
    const times = [...this.newest.values()].flatMap((left) => (left.nodeId === nodeId ? left.dueAtMs : []));
    return times.length === 0 ? undefined : Math.max(0, Math.min(...times) - this.clock.now());
  }
}

/** @param more - That are not among those left out. */
function counted(event: EventInit, left: LeftOut | undefined, more: number): EventInit {
  const count = (left?.count ?? 0) + more;
  return left === undefined || count <= 1 ? event : { ...event, count, firstTime: timestampFromMs(left.sinceMs) };
}
