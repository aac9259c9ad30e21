import { assert, type NodeId } from '@cloudless/base';
import type {
  LossCause,
  Membership,
  MembershipOptions,
  NodeLease,
  NodeState,
  RenewalResult,
  Transition,
} from './node-state.js';

/**
 * Creates an empty lease table.
 * @throws An assertion error when the reconnect window is not above 0 or longer than the lease, or
 *   when a node would count as hung before its lease ends.
 */
export function createMembership(options: MembershipOptions = {}): Membership {
  return new LeaseTable(
    options.leaseMs ?? DEFAULT_LEASE_MS,
    options.reconnectWindowMs ?? DEFAULT_RECONNECT_WINDOW_MS,
    options.hungAfterMs ?? DEFAULT_HUNG_AFTER_MS,
  );
}

/** Three renewals of 900 ms and a margin: two lost packets do not lose a node. */
const DEFAULT_LEASE_MS = 3_000;
/**
 * Long enough for a reconnect after a proxy closed the connection, too short for the restart of an
 * agent.
 */
const DEFAULT_RECONNECT_WINDOW_MS = 250;
/** Ten leases: far longer than a starved machine delays an agent that will continue. */
const DEFAULT_HUNG_AFTER_MS = 30_000;
/**
 * From this many nodes on, simultaneous resets of more than half of the nodes point to the network,
 * not to agents.
 */
const MASS_RESET_NODES = 4;

/** States that a join leaves without reporting the node as `alive`. */
const TRUSTED: ReadonlySet<NodeState> = new Set(['connected', 'slow', 'reconnecting', 'away']);

/** Returns true when the node has a session, and it is `session` if that is given. */
const hasSession = (entry: LeaseEntry, session: number | undefined): boolean =>
  (entry.state === 'connected' || entry.state === 'slow') &&
  (session === undefined || session === entry.session);

class LeaseTable implements Membership {
  private readonly entries = new Map<NodeId, LeaseEntry>();
  private readonly stateCounts: Record<NodeState, number> = {
    expected: 0,
    connected: 0,
    slow: 0,
    reconnecting: 0,
    away: 0,
    lost: 0,
  };
  private pendingTransitions: Transition[] = [];
  private sessions = 0;
  /**
   * Sum of all extensions. Stored times are relative to it, so that one extension moves every
   * deadline.
   */
  private extendedMs = 0;
  /** Time of the last join of an expected node since `renewAll`, minus all extensions. */
  private returnedAt = -Infinity;
  /** End of the leases that last on because other nodes return, minus all extensions. */
  private returnEndsAt = -Infinity;
  /**
   * Earliest time at which a sweep can change the state of a node, minus all extensions. Renewals
   * only make this time later. Every change but renewals and extensions resets the time, so that
   * the next sweep looks at all nodes.
   */
  private quietUntil = -Infinity;

  constructor(
    private readonly leaseMs: number,
    private readonly reconnectWindowMs: number,
    private readonly hungAfterMs: number,
  ) {
    assert(hungAfterMs >= leaseMs, 'a node hangs no earlier than its lease ends');
    assert(
      reconnectWindowMs > 0 && reconnectWindowMs <= leaseMs,
      'the reconnect window is above 0 and no longer than the lease',
    );
  }

  join(nodeId: NodeId, nowMs: number): number {
    const session = (this.sessions += 1);
    const renewedAt = nowMs - this.extendedMs;
    const entry = this.entries.get(nodeId);
    const wasTrusted = entry !== undefined && TRUSTED.has(entry.state);
    if (!wasTrusted) this.report('alive', nodeId, nowMs);
    if (entry?.state === 'slow') this.report('recovered', nodeId, nowMs);
    if (entry?.state === 'expected') this.returnedAt = renewedAt;
    if (entry === undefined) {
      this.add(new LeaseEntry(this, nodeId, 'connected', session, renewedAt));
    } else {
      this.setState(entry, 'connected');
      entry.session = session;
      entry.renewedAt = wasTrusted ? Math.max(entry.renewedAt, renewedAt) : renewedAt;
      entry.turnedAt = renewedAt;
    }
    return session;
  }

  renew(nodeId: NodeId, nowMs: number, loopAgeMs = 0): RenewalResult {
    return this.entries.get(nodeId)?.renew(nowMs, loopAgeMs) ?? 'unknown';
  }

  find(nodeId: NodeId): NodeLease | undefined {
    return this.entries.get(nodeId);
  }

  /** Renews a lease that is not lost. */
  renewEntry(entry: LeaseEntry, nowMs: number, loopAgeMs: number): void {
    const renewedAt = nowMs - this.extendedMs;
    entry.renewedAt = Math.max(entry.renewedAt, renewedAt);
    entry.turnedAt = Math.max(entry.turnedAt, renewedAt - Math.max(0, loopAgeMs));
    if (entry.state === 'slow' && renewedAt - entry.turnedAt < this.leaseMs) {
      this.setState(entry, 'connected');
      this.report('recovered', entry.nodeId, nowMs);
    }
  }

  loseConnection(nodeId: NodeId, nowMs: number, session?: number): void {
    const entry = this.entries.get(nodeId);
    if (entry === undefined || !hasSession(entry, session)) return;
    if (entry.state === 'slow') this.report('recovered', nodeId, nowMs);
    this.setState(entry, 'reconnecting');
    entry.reconnectSince = nowMs - this.extendedMs;
  }

  depart(nodeId: NodeId, nowMs: number, graceMs: number, session?: number): boolean {
    const entry = this.entries.get(nodeId);
    if (entry === undefined) return false;
    const isExpected = entry.state === 'expected' && session === undefined;
    if (!isExpected && !hasSession(entry, session)) return false;
    if (entry.state === 'slow') this.report('recovered', nodeId, nowMs);
    this.setState(entry, 'away');
    entry.graceEndsAt = nowMs - this.extendedMs + Math.max(0, graceMs);
    return true;
  }

  endGrace(nodeId: NodeId): void {
    const entry = this.entries.get(nodeId);
    if (entry?.state !== 'away') return;
    entry.graceEndsAt = -Infinity;
    entry.renewedAt = -Infinity;
    this.quietUntil = -Infinity;
  }

  leave(nodeId: NodeId): void {
    const entry = this.entries.get(nodeId);
    if (entry === undefined) return;
    this.stateCounts[entry.state] -= 1;
    this.entries.delete(nodeId);
    entry.state = 'lost';
    this.quietUntil = -Infinity;
    this.pendingTransitions = this.pendingTransitions.filter(
      (transition) => transition.nodeId !== nodeId,
    );
  }

  sweep(nowMs: number): readonly Transition[] {
    if (this.quietUntil + this.extendedMs <= nowMs) this.endLeases(nowMs);
    const transitions = this.pendingTransitions;
    this.pendingTransitions = [];
    return transitions;
  }

  /** Looks at all leases, and sets {@link quietUntil}. */
  private endLeases(nowMs: number): void {
    this.quietUntil = Infinity;
    const massReset = this.isMassReset();
    for (const [nodeId, entry] of this.entries) {
      // Infinity stays until the node joins again, so that the last node of a mass reset has as
      // much time as the first, although fewer than half of the nodes are still reconnecting.
      if (massReset && entry.state === 'reconnecting') entry.reconnectSince = Infinity;
      if (entry.state === 'lost') continue;
      const deadline = this.getDeadline(entry, massReset);
      if (deadline + this.extendedMs <= nowMs) {
        const cause = this.explainLoss(entry, nowMs);
        this.pendingTransitions.push({ kind: 'lost', nodeId, atMs: nowMs, cause });
        this.setState(entry, 'lost');
        continue;
      }
      this.quietUntil = Math.min(this.quietUntil, deadline);
      if (entry.state !== 'connected') continue;
      const slowAt = entry.turnedAt + this.leaseMs;
      if (slowAt + this.extendedMs <= nowMs) {
        this.setState(entry, 'slow');
        this.report('slow', nodeId, nowMs);
      } else this.quietUntil = Math.min(this.quietUntil, slowAt);
    }
  }

  extendLeases(lagMs: number): void {
    this.extendedMs += Math.max(0, lagMs);
  }

  renewAll(
    nowMs: number,
    registered: Iterable<NodeId> = [],
    extraMs = 0,
    maxExtraMs = extraMs,
  ): void {
    const renewedAt = nowMs - this.extendedMs + extraMs;
    this.returnedAt = -Infinity;
    this.returnEndsAt = nowMs - this.extendedMs + maxExtraMs + this.leaseMs;
    this.quietUntil = -Infinity;
    for (const entry of this.entries.values()) {
      entry.renewedAt = Math.max(entry.renewedAt, renewedAt);
      entry.turnedAt = Math.max(entry.turnedAt, renewedAt);
      if (entry.state === 'reconnecting') this.setState(entry, 'expected');
    }
    for (const nodeId of registered) {
      const entry = this.entries.get(nodeId);
      if (entry === undefined) this.add(new LeaseEntry(this, nodeId, 'expected', 0, renewedAt));
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

  getLoopAgeMs(nodeId: NodeId, nowMs: number): number | undefined {
    const entry = this.entries.get(nodeId);
    return entry && Math.max(0, nowMs - entry.turnedAt - this.extendedMs);
  }

  counts(): Readonly<Record<NodeState, number>> {
    return { ...this.stateCounts };
  }

  /**
   * Returns true when so many connections broke at once that the network or the coordinator is the
   * cause. The lease then decides about the loss of a node, not the reconnect window.
   */
  private isMassReset(): boolean {
    const { expected, connected, slow, reconnecting } = this.stateCounts;
    // Nodes that are away have no connection that could have broken.
    const others = expected + connected + slow;
    return reconnecting >= MASS_RESET_NODES && reconnecting > others;
  }

  private getDeadline(entry: LeaseEntry, massReset: boolean): number {
    const lease = entry.renewedAt + this.leaseMs;
    switch (entry.state) {
      case 'connected':
      case 'slow':
        return Math.min(lease, entry.turnedAt + this.hungAfterMs);
      case 'reconnecting':
        return massReset ? lease : Math.min(lease, entry.reconnectSince + this.reconnectWindowMs);
      case 'away':
        return Math.max(lease, entry.graceEndsAt);
      case 'expected':
        return Math.max(lease, Math.min(this.returnedAt + this.leaseMs, this.returnEndsAt));
      case 'lost':
        return lease;
    }
  }

  private explainLoss(entry: LeaseEntry, nowMs: number): LossCause {
    if (entry.state === 'away') return 'departure';
    if (entry.state === 'reconnecting')
      return entry.reconnectSince === Infinity ? 'silence' : 'reset';
    return entry.renewedAt + this.leaseMs + this.extendedMs > nowMs ? 'hung' : 'silence';
  }

  private report(kind: 'alive' | 'slow' | 'recovered', nodeId: NodeId, atMs: number): void {
    this.pendingTransitions.push({ kind, nodeId, atMs });
  }

  private add(entry: LeaseEntry): void {
    this.entries.set(entry.nodeId, entry);
    this.stateCounts[entry.state] += 1;
    this.quietUntil = -Infinity;
  }

  private setState(entry: LeaseEntry, state: NodeState): void {
    this.stateCounts[entry.state] -= 1;
    this.stateCounts[state] += 1;
    entry.state = state;
    this.quietUntil = -Infinity;
  }
}

/** The part of the table that a lease needs. */
interface LeaseOwner {
  renewEntry(entry: LeaseEntry, nowMs: number, loopAgeMs: number): void;
}

class LeaseEntry implements NodeLease {
  /**
   * Begin of the reconnect window, minus all extensions; Infinity when the lease decides instead.
   * Used while `reconnecting`.
   */
  reconnectSince = 0;
  /** Newest time at which the main loop of the agent certainly turned, minus all extensions. */
  turnedAt: number;
  /** End of the grace, minus all extensions. Used while `away`. */
  graceEndsAt = 0;

  /**
   * @param renewedAt - Time of the last renewal, minus all extensions by `extendLeases` so far.
   */
  constructor(
    private readonly table: LeaseOwner,
    readonly nodeId: NodeId,
    public state: NodeState,
    public session: number,
    public renewedAt: number,
  ) {
    this.turnedAt = renewedAt;
  }

  renew(nowMs: number, loopAgeMs: number): RenewalResult {
    if (this.state === 'lost') return 'lost';
    this.table.renewEntry(this, nowMs, loopAgeMs);
    return 'renewed';
  }
}
