import type { DescMethod } from '@bufbuild/protobuf';

/**
 * Importance of a call. When the server is busy, calls of the first priority run first, and calls
 * of the last priority are refused first.
 * - `control`: keeps the cluster alive: sessions, tunnels, heartbeats, health. Never refused
 *   because of overload.
 * - `stop`: reduces load or keeps load off a node. Refused only when its queue is full.
 * - `write`: every other change.
 * - `read`: everything that changes nothing.
 */
export type CallPriority = 'control' | 'stop' | 'write' | 'read';

/** All priorities, the most important first. */
export const CALL_PRIORITIES: readonly CallPriority[] = ['control', 'stop', 'write', 'read'];

/** How the server treats the calls of one RPC. */
export interface CallClass {
  readonly priority: CallPriority;
  /**
   * True for a unary RPC that mostly waits for something outside of the process, such as a running
   * command. Its calls count as streams. Default false.
   */
  readonly longRunning?: boolean;
  /**
   * True for a stream that sends a snapshot from memory as fast as the client reads. Such streams
   * share a quota of messages for each iteration of the event loop, so that many streams do not
   * delay other calls. Default false.
   */
  readonly interleaved?: boolean;
  /**
   * True for a stream whose large request messages wait for their turn, because many clients send
   * theirs at the same time: they share a quota for each iteration of the event loop. Default false.
   */
  readonly readsInTurns?: boolean;
  /**
   * Bytes of the request of a unary call as they arrive. For calls that strangers may make, whose
   * requests are small. Default: `readMaxBytes` of the server.
   */
  readonly maxRequestBytes?: number;
}

/**
 * Returns the class of an RPC. When the result is undefined, the server does not start.
 */
export type ClassifyCall = (method: DescMethod) => CallClass | undefined;

/** Limits of the calls of one priority. */
export interface PriorityLimits {
  /** Most calls whose handler runs. A stream counts only until its handler has started. */
  readonly running: number;
  /** Most calls that wait in the queue. */
  readonly waiting: number;
  /** Longest time that a call waits, in milliseconds. */
  readonly waitMs: number;
}
