import { assert, type NodeId } from '@cloudless/base';

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
}

/**
 * State of a node:
 * - `expected`: leased after a change of the leader, has not joined this leader yet;
 * - `connected`: has a session and a running lease;
 * - `reconnecting`: its connection broke, and the reconnect window is running;
 * - `lost`: its lease ended; only a new join brings it back.
 */
export type NodeState = 'expected' | 'connected' | 'reconnecting' | 'lost';

/** Why a lease ended: no message came, or the connection broke and was not restored. */
export type LossCause = 'silence' | 'reset';

/** A change of a node's state. Times are milliseconds of the caller's clock. */
export type Transition =
  | { readonly kind: 'alive'; readonly nodeId: NodeId; readonly atMs: number }
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
   */
  renew(nodeId: NodeId, nowMs: number): RenewalResult;
  /**
   * Records that the connection of a session broke. Starts the reconnect window when the node is
   * `connected` and the session is its newest one; changes nothing otherwise.
   * @param session - Number that `join` returned. Default: the newest session of the node.
   */
  loseConnection(nodeId: NodeId, nowMs: number, session?: number): void;
  /** Removes a node. No sweep reports a transition of the node any more. */
  leave(nodeId: NodeId): void;
  /**
   * Ends the leases and reconnect windows that are due.
   * @returns The transitions since the last sweep, oldest first.
   */
  sweep(nowMs: number): readonly Transition[];
  /**
   * Extends every running lease and reconnect window by `lagMs`: the caller's event loop was
   * blocked for that time, so no message could be received.
   */
  extendLeases(lagMs: number): void;
  /**
   * Gives a full lease to every node that is not lost, and to each node of `registered`, known or
   * not, lost or not. Called after a change of the leader, as a new leader cannot know which nodes
   * were silent before. No node becomes `alive` by this call.
   * @param extraMs - Milliseconds added to these leases, as many nodes cannot reconnect at the same
   *   moment. The first join of an expected node ends its extra time. Default 0.
   */
  renewAll(nowMs: number, registered?: Iterable<NodeId>, extraMs?: number): void;
  /**
   * Returns the time at which the next lease or reconnect window ends without a renewal. No sweep
   * before that time reports a loss.
   * @returns Undefined when no lease is running.
   */
  nextDeadline(): number | undefined;
  /** Returns the state of a node; undefined when the node never joined, or has left. */
  getState(nodeId: NodeId): NodeState | undefined;
  /** Returns the number of nodes in each state. */
  counts(): Readonly<Record<NodeState, number>>;
}

/**
 * Creates an empty lease table.
 * @throws An assertion error when the reconnect window is longer than the lease, or one of them is
 *   not above 0.
 */
export function createMembership(options: MembershipOptions = {}): Membership {
  return new LeaseTable(
    options.leaseMs ?? DEFAULT_LEASE_MS,
    options.reconnectWindowMs ?? DEFAULT_RECONNECT_WINDOW_MS,
  );
}

/** Three renewals of 900 ms and a margin: two lost packets do not lose a node. */
const DEFAULT_LEASE_MS = 3_000;
/**
 * Long enough for a reconnect after a proxy closed the connection, too short for the restart of an
 * agent.
 */
const DEFAULT_RECONNECT_WINDOW_MS = 250;
/**
 * From this many nodes on, simultaneous resets of more than half of the nodes point to the network,
 * not to agents.
 */
const MASS_RESET_NODES = 4;

interface NodeLease {
  state: NodeState;
  session: number;
  /** Time of the last renewal, minus all extensions by `extendLeases` so far. */
  renewedAt: number;
  /**
   * Begin of the reconnect window, minus all extensions; Infinity when the lease decides instead.
   * Used while `reconnecting`.
   */
  reconnectSince: number;
}

class LeaseTable implements Membership {
  private readonly entries = new Map<NodeId, NodeLease>();
  private readonly stateCounts: Record<NodeState, number> = {
    expected: 0,
    connected: 0,
    reconnecting: 0,
    lost: 0,
  };
  private pendingTransitions: Transition[] = [];
  private sessions = 0;
  /**
   * Sum of all extensions. Stored times are relative to it, so that one extension moves every
   * deadline.
   */
  private extendedMs = 0;

  constructor(
    private readonly leaseMs: number,
    private readonly reconnectWindowMs: number,
  ) {
    assert(
      reconnectWindowMs > 0 && reconnectWindowMs <= leaseMs,
      'the reconnect window is above 0 and no longer than the lease',
    );
  }

  join(nodeId: NodeId, nowMs: number): number {
    const session = (this.sessions += 1);
    const renewedAt = nowMs - this.extendedMs;
    const entry = this.entries.get(nodeId);
    const wasTrusted = entry?.state === 'connected' || entry?.state === 'reconnecting';
    if (!wasTrusted) this.pendingTransitions.push({ kind: 'alive', nodeId, atMs: nowMs });
    if (entry === undefined) {
      this.add(nodeId, { state: 'connected', session, renewedAt, reconnectSince: 0 });
    } else {
      this.setState(entry, 'connected');
      entry.session = session;
      entry.renewedAt = wasTrusted ? Math.max(entry.renewedAt, renewedAt) : renewedAt;
    }
    return session;
  }

  renew(nodeId: NodeId, nowMs: number): RenewalResult {
    const entry = this.entries.get(nodeId);
    if (entry === undefined) return 'unknown';
    if (entry.state === 'lost') return 'lost';
    entry.renewedAt = Math.max(entry.renewedAt, nowMs - this.extendedMs);
    return 'renewed';
  }

  loseConnection(nodeId: NodeId, nowMs: number, session?: number): void {
    const entry = this.entries.get(nodeId);
    if (entry?.state !== 'connected' || (session !== undefined && session !== entry.session))
      return;
    this.setState(entry, 'reconnecting');
    entry.reconnectSince = nowMs - this.extendedMs;
  }

  leave(nodeId: NodeId): void {
    const entry = this.entries.get(nodeId);
    if (entry === undefined) return;
    this.stateCounts[entry.state] -= 1;
    this.entries.delete(nodeId);
    this.pendingTransitions = this.pendingTransitions.filter(
      (transition) => transition.nodeId !== nodeId,
    );
  }

  sweep(nowMs: number): readonly Transition[] {
    const massReset = this.isMassReset();
    for (const [nodeId, entry] of this.entries) {
      // Infinity stays until the node joins again, so that the last node of a mass reset has as
      // much time as the first, although fewer than half of the nodes are still reconnecting.
      if (massReset && entry.state === 'reconnecting') entry.reconnectSince = Infinity;
      if (entry.state === 'lost' || this.getDeadline(entry, massReset) + this.extendedMs > nowMs)
        continue;
      const cause =
        entry.state === 'reconnecting' && entry.reconnectSince !== Infinity ? 'reset' : 'silence';
      this.pendingTransitions.push({ kind: 'lost', nodeId, atMs: nowMs, cause });
      this.setState(entry, 'lost');
    }
    const transitions = this.pendingTransitions;
    this.pendingTransitions = [];
    return transitions;
  }

  extendLeases(lagMs: number): void {
    this.extendedMs += Math.max(0, lagMs);
  }

  renewAll(nowMs: number, registered: Iterable<NodeId> = [], extraMs = 0): void {
    const renewedAt = nowMs - this.extendedMs + extraMs;
    for (const entry of this.entries.values()) {
      entry.renewedAt = Math.max(entry.renewedAt, renewedAt);
      if (entry.state === 'reconnecting') this.setState(entry, 'expected');
    }
    for (const nodeId of registered) {
      const entry = this.entries.get(nodeId);
      if (entry === undefined)
        this.add(nodeId, { state: 'expected', session: 0, renewedAt, reconnectSince: 0 });
      else if (entry.state === 'lost') this.setState(entry, 'expected');
    }
  }

  nextDeadline(): number | undefined {
    const massReset = this.isMassReset();
    let next = Infinity;
    for (const entry of this.entries.values()) {
      if (entry.state !== 'lost') next = Math.min(next, this.getDeadline(entry, massReset));
    }
    return next === Infinity ? undefined : next + this.extendedMs;
  }

  getState(nodeId: NodeId): NodeState | undefined {
    return this.entries.get(nodeId)?.state;
  }

  counts(): Readonly<Record<NodeState, number>> {
    return { ...this.stateCounts };
  }

  /**
   * Returns true when so many connections broke at once that the network or the coordinator is the
   * cause. The lease then decides about the loss of a node, not the reconnect window.
   */
  private isMassReset(): boolean {
    const { expected, connected, reconnecting } = this.stateCounts;
    return (
      reconnecting >= MASS_RESET_NODES && reconnecting * 2 > expected + connected + reconnecting
    );
  }

  private getDeadline(entry: NodeLease, massReset: boolean): number {
    const lease = entry.renewedAt + this.leaseMs;
    return entry.state === 'reconnecting' && !massReset
      ? Math.min(lease, entry.reconnectSince + this.reconnectWindowMs)
      : lease;
  }

  private add(nodeId: NodeId, entry: NodeLease): void {
    this.entries.set(nodeId, entry);
    this.stateCounts[entry.state] += 1;
  }

  private setState(entry: NodeLease, state: NodeState): void {
    this.stateCounts[entry.state] -= 1;
    this.stateCounts[state] += 1;
    entry.state = state;
  }
}
