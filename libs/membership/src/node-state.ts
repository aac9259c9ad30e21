import type { NodeId } from '@cloudless/base';

/** Lengths of leases and windows. */
export interface MembershipOptions {
  /**
   * Milliseconds for which a node is trusted after its last message. Default 3 000; agents renew
   * every 900 ms.
   */
  readonly leaseMs?: number;
  /**
   * Milliseconds in which a node whose connection was reset may reconnect. Default 250; at most
   * `leaseMs`.
   */
  readonly reconnectWindowMs?: number;
  /**
   * Milliseconds after the last turn of an agent's main loop at which the node is lost although its
   * lease is renewed. Default 30 000; at least `leaseMs`.
   */
  readonly hungAfterMs?: number;
}

/**
 * State of a node:
 * - `expected`: leased after a change of the leader, has not joined this leader yet;
 * - `connected`: has a session and a running lease;
 * - `slow`: has a session and a running lease, but the main loop of its agent has not turned for the
 *   length of a lease, so its reports are not current;
 * - `reconnecting`: its connection broke, and the reconnect window is running;
 * - `away`: its agent left in good order, and the grace is running;
 * - `lost`: for a {@link LossCause}, with or without a running lease; only a new join brings it
 *   back.
 */
export type NodeState = 'expected' | 'connected' | 'slow' | 'reconnecting' | 'away' | 'lost';

/**
 * Why a node was lost: no message came; the connection broke and was not restored; the agent left
 * and did not return within its grace; the main loop of the agent did not turn.
 */
export type LossCause = 'silence' | 'reset' | 'departure' | 'hung';

/** A change of a node's state. Times are milliseconds of the caller's clock. */
export type Transition =
  | {
      /**
       * `alive`: joined after a loss, or for the first time; `slow`: the state became `slow`;
       * `recovered`: the main loop of a slow node turned again, or the node joined again.
       */
      readonly kind: 'alive' | 'slow' | 'recovered';
      readonly nodeId: NodeId;
      readonly atMs: number;
    }
  | {
      readonly kind: 'lost';
      readonly nodeId: NodeId;
      readonly atMs: number;
      readonly cause: LossCause;
    };

/**
 * Result of a renewal. A node with result `lost` or `unknown` has to join again, with its
 * inventory.
 */
export type RenewalResult = 'renewed' | 'lost' | 'unknown';

/** The lease of one node. The object stays the same until the node leaves. */
export interface NodeLease {
  /** State of the node; `lost` after it has left. */
  readonly state: NodeState;
  /**
   * Renews the lease as `Membership.renew` does, without a look-up by id. Never returns `unknown`;
   * returns `lost` after the node has left.
   * @param nowMs - Monotonic milliseconds.
   * @param loopAgeMs - As in `Membership.renew`; 0 when the main loop sent the message.
   */
  renew(nowMs: number, loopAgeMs: number): RenewalResult;
}

/**
 * The table of node leases. Every method takes `nowMs`, monotonic milliseconds of the caller's
 * clock; wall clocks play no part. A lease ends only in `sweep`: a renewal before the sweep counts,
 * however late it is.
 */
export interface Membership {
  /**
   * Records a new session of a node and gives the node a full lease. The next sweep reports
   * `alive`, unless the node had a session or could still reconnect.
   * @returns The session number for `loseConnection`, so that the late end of an older session
   *   changes nothing.
   */
  join(nodeId: NodeId, nowMs: number): number;
  /**
   * Renews the lease of a node. A node in state `expected` needs no join for this, and stays
   * `expected`.
   * @param loopAgeMs - Milliseconds since the main loop of the agent last turned, measured when the
   *   agent sent the message. Default 0: the main loop itself sent the message.
   */
  renew(nodeId: NodeId, nowMs: number, loopAgeMs?: number): RenewalResult;
  /**
   * Returns the lease of a node, for callers that renew it often. Undefined when the node never
   * joined, or has left.
   */
  find(nodeId: NodeId): NodeLease | undefined;
  /**
   * Records that the connection of a session broke. Starts the reconnect window when the node is
   * `connected` or `slow` and the session is its newest one; changes nothing otherwise.
   * @param session - Number that `join` returned. Default: the newest session of the node.
   */
  loseConnection(nodeId: NodeId, nowMs: number, session?: number): void;
  /**
   * Records that the agent of a node left in good order: the node is lost only when neither its
   * lease nor its grace runs. Without effect unless the node has a session, or is `expected`.
   * @param graceMs - Milliseconds from now within which the agent may return, 0 or more.
   * @param session - As in `loseConnection`.
   * @returns True when the node is `away` now.
   */
  depart(nodeId: NodeId, nowMs: number, graceMs: number, session?: number): boolean;
  /** Ends the grace and the lease of a node that is `away`. The next sweep reports its loss. */
  endGrace(nodeId: NodeId): void;
  /** Removes a node. No sweep reports a transition of the node any more. */
  leave(nodeId: NodeId): void;
  /**
   * Ends the leases, reconnect windows and graces that are due, and loses nodes that hang.
   * @returns The transitions since the last sweep, oldest first.
   */
  sweep(nowMs: number): readonly Transition[];
  /**
   * Extends every running lease, reconnect window and grace by `lagMs`: the caller's event loop was
   * blocked for that time, so no message could be received.
   */
  extendLeases(lagMs: number): void;
  /**
   * Gives a full lease to every node that is not lost, and to each node of `registered`, known or
   * not, lost or not. Called after a change of the leader, as a new leader cannot know which nodes
   * were silent before. No node becomes `alive` by this call.
   * @param extraMs - Milliseconds added to these leases, as many nodes cannot reconnect at the same
   *   moment. The first join of an expected node ends its extra time. Default 0.
   * @param maxExtraMs - Most milliseconds added while expected nodes return: the leases of the other
   *   expected nodes last until no node has joined for the length of a lease. Default `extraMs`.
   */
  renewAll(
    nowMs: number,
    registered?: Iterable<NodeId>,
    extraMs?: number,
    maxExtraMs?: number,
  ): void;
  /**
   * Returns the time at which the next node is lost without a further message. No sweep before that
   * time reports a loss.
   * @returns Undefined when no lease is running.
   */
  nextDeadline(): number | undefined;
  /** Returns the state of a node; undefined when the node never joined, or has left. */
  getState(nodeId: NodeId): NodeState | undefined;
  /**
   * Returns the milliseconds since the main loop of a node's agent certainly turned, 0 or more;
   * undefined for an unknown node.
   */
  getLoopAgeMs(nodeId: NodeId, nowMs: number): number | undefined;
  /** Returns the number of nodes in each state. */
  counts(): Readonly<Record<NodeState, number>>;
}
