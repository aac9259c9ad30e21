import type { DescMethod } from '@bufbuild/protobuf';

/**
 * How important a call is when there is more to do than time: the first lane goes first, the last
 * one is shed first.
 * - `control`: what keeps the cluster's own loops alive: sessions, tunnels, heartbeats, health.
 *   Never shed for lack of time.
 * - `stop`: what takes load away or keeps it off a node. Refused only when its queue is full.
 * - `write`: every other change.
 * - `read`: everything that changes nothing.
 */
export type Lane = 'control' | 'stop' | 'write' | 'read';

/** All lanes, the most important first. */
export const LANES: readonly Lane[] = ['control', 'stop', 'write', 'read'];

/** What a server must know of an RPC to admit calls of it. */
export interface CallClass {
  readonly lane: Lane;
  /**
   * A unary call that mostly waits for something outside, as a command that runs: it counts as a
   * stream does.
   */
  readonly long?: boolean;
  /**
   * A stream that produces a snapshot from memory, as fast as the client reads. Such streams
   * produce their messages in turns, so that many of them do not delay other calls.
   */
  readonly inTurns?: boolean;
}

/** Says to which lane an RPC belongs. Undefined is a mistake: the server does not start. */
export type ClassOf = (method: DescMethod) => CallClass | undefined;

/** What one lane may hold. */
export interface LaneLimits {
  /** Calls whose handler works. Streams leave this count once they have begun. */
  readonly running: number;
  /** Calls that wait for their turn. */
  readonly waiting: number;
  /** Longest wait of one call, in milliseconds. */
  readonly waitMs: number;
}
