import type { DescMethod } from '@bufbuild/protobuf';

/**
 * Importance of a call. When the server has more work than time, calls of the first priority run
 * first, and calls of the last priority are refused first.
 * - `control`: keeps the cluster alive: sessions, tunnels, heartbeats, health. Never refused
 *   because of overload.
 * - `stop`: reduces load or keeps load off a node. Refused only when its queue is full.
 * - `write`: every other change.
 * - `read`: everything that changes nothing.
 */
export type CallPriority = 'control' | 'stop' | 'write' | 'read';

/** All priorities, the most important first. */
export const CALL_PRIORITIES: readonly CallPriority[] = ['control', 'stop', 'write', 'read'];

export interface CallClass {
  readonly priority: CallPriority;
  /**
   * A unary call that mostly waits for something outside of the process, such as a command that
   * runs. Counts as a stream does. Default false.
   */
  readonly longRunning?: boolean;
  /**
   * A stream that sends a snapshot from memory as fast as the client reads. Such streams share a
   * quota of messages for each event loop iteration, so that many of them do not delay other calls.
   * Default false.
   */
  readonly interleaved?: boolean;
}

/**
 * Returns the class of an RPC. Undefined is a programming error: the server then does not start.
 */
export type ClassifyCall = (method: DescMethod) => CallClass | undefined;

export interface PriorityLimits {
  /** Calls whose handler runs. A stream counts only until it has started. */
  readonly running: number;
  /** Calls that wait in the queue. */
  readonly waiting: number;
  /** Longest time that a call waits, in milliseconds. */
  readonly waitMs: number;
}
