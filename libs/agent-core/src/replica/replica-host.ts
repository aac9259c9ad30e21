import type { Order } from '@cloudless/api';
import type { ContainerStatus } from '@cloudless/runtime';
import type { ReplicaEvent, ReplicaState } from './replica-state.js';

/** State and event input of one replica, for the classes that carry out its effects. */
export interface ReplicaHost {
  /** Current state of the replica. */
  readonly current: ReplicaState;
  /** True once the agent no longer controls the replica: it was forgotten, or the agent stops. */
  readonly isClosed: boolean;
  /** Aborted once `isClosed` is true. */
  readonly signal: AbortSignal;
  /** The stored start order; undefined before the first start order. */
  readonly startOrder: Order | undefined;
  /**
   * Applies an event to the state.
   * @param observedAt - Time of the event on the monotonic clock, milliseconds; restart delays
   *   count from this time. Default: now.
   */
  apply(event: ReplicaEvent, observedAt?: number): void;
  /** Handles a start that the runtime reports. */
  onRunning(status: ContainerStatus): void;
  /** Handles an exit that the runtime reports. */
  onExited(status: ContainerStatus): void;
}
