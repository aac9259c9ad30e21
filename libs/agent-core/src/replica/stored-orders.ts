import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import { definedFields, CloudlessError, type ContainerId } from '@cloudless/base';
import { OrderSchema, type Order, type StopOrder } from '@cloudless/api';
import type { StoredProgress, StoredReplica } from '../store/agent-store.js';
import { toReplicaTarget } from './replica-target.js';
import type { Activity, ReplicaEvent, ReplicaState, StopDelays } from './replica-state.js';
import { resolveStopDelays } from './stop-delays.js';

/**
 * Longest wait for network proxies, milliseconds, whatever the stop order says: a coordinator that
 * is gone cannot send EndpointsGone.
 */
const MAX_GONE_WAIT_MS = 5_000;

/** Stored orders of a replica. */
export type ReplicaOrders = Pick<StoredReplica, 'start' | 'end' | 'bootId' | 'stopped'>;

/**
 * Returns the stored orders with one more accepted order.
 * @param bootId - Boot of the machine in which the order was accepted.
 */
export function withOrder(orders: ReplicaOrders, order: Order, bootId: string): ReplicaOrders {
  const bytes = toBinary(OrderSchema, order);
  return order.order.case === 'start'
    ? { ...orders, start: bytes, bootId }
    : { ...orders, end: bytes, bootId };
}

/** Converts orders and state to the stored form. */
export function toStoredReplica(state: ReplicaState, orders: ReplicaOrders): StoredReplica {
  const { start, end, bootId, stopped } = orders;
  const { replicaId, workloadUid, heldRevision } = state;
  return {
    ...{ replicaId, workloadUid, heldRevision, bootId },
    ...definedFields({ start, end, stopped }),
    progress: toStoredProgress(state),
  };
}

/** Converts the state to the progress that is stored. */
export function toStoredProgress(state: ReplicaState): StoredProgress {
  const { activity, container } = state;
  if (activity.kind === 'unlisted') return activity.progress;
  return {
    phase: state.phase,
    reason: state.reason,
    restarts: state.restarts,
    ...(state.failedStarts === 0 ? {} : { failedStarts: state.failedStarts }),
    failures: state.failures,
    ...definedFields({ lastExitCode: state.lastExitCode, lastEndReason: state.lastEndReason }),
    ...(state.lastLines.length === 0 ? {} : { lastLines: state.lastLines }),
    ...(container === undefined ? {} : { containerId: container.id }),
    ...(activity.kind === 'killing' ? { killing: activity.reason } : {}),
    containerEnded: hasHandledEnd(activity),
    ready: state.ready,
  };
}

/**
 * Returns true when the end of the newest container has been handled and counted, or there is no
 * container. A replica that waits for its order has an `exit` only while the exit is not
 * handled.
 */
function hasHandledEnd(activity: Exclude<Activity, { kind: 'unlisted' }>): boolean {
  if (activity.kind === 'unconfirmed') return activity.exit === undefined;
  return ['backingOff', 'starting', 'ended'].includes(activity.kind);
}

/**
 * Converts an order to the event of the replica.
 * @throws kind `invalid` when a start order has no spec, `unimplemented` for a kind of order that
 *   this agent does not support.
 */
export function toOrderEvent(order: Order, newContainerId: ContainerId): ReplicaEvent {
  const { orderRevision: revision } = order;
  switch (order.order.case) {
    case 'start':
      return { kind: 'startOrdered', revision, target: toReplicaTarget(order), newContainerId };
    case 'stop':
      return {
        kind: 'stopOrdered',
        revision,
        delays: toStopDelays(order.order.value),
        reason: order.order.value.reason,
      };
    case 'forget':
      return { kind: 'forgetOrdered', revision };
    default:
      throw new CloudlessError(
        'unimplemented',
        'this agent version does not support this kind of order',
      );
  }
}

/** Decodes a stored stop or forget order. Delays that the order does not set come from `target`. */
export function toStoredStop(
  end: Uint8Array,
  target: ReplicaState['target'],
): { readonly stop: StopDelays; readonly forget: boolean } {
  const { order } = fromBinary(OrderSchema, end);
  return {
    stop: resolveStopDelays(target, order.case === 'stop' ? toStopDelays(order.value) : {}),
    forget: order.case === 'forget',
  };
}

/** Reads the delays that a stop order sets. */
function toStopDelays(stop: StopOrder): Partial<StopDelays> {
  const awaitedMs = toMs(stop.awaitEndpointsGone);
  return definedFields({
    endpointsGoneMs: awaitedMs === undefined ? undefined : Math.min(awaitedMs, MAX_GONE_WAIT_MS),
    preStopMs: toMs(stop.preStopDelay),
    graceMs: toMs(stop.gracePeriod),
  });
}

function toMs(duration: Duration | undefined): number | undefined {
  return duration === undefined ? undefined : Math.max(0, durationMs(duration));
}
