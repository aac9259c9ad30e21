import { assert, type NodeId } from '@cloudless/base';

/** Durations of the lease table, milliseconds. */
export interface MembershipOptions {
  /**
   * How long a node is trusted after it was last heard. Default 3 000; agents renew each 900 ms.
   */
  readonly leaseMs?: number;
  /**
   * How long a node whose connection was reset may take to come back. Default 250; no longer than
   * the lease.
   */
  readonly reconnectWindowMs?: number;
}

/**
 * What the table knows of a node:
 * - `expected`: leased after a change of the leader, has not joined this leader yet;
 * - `connected`: it has a session, and its lease runs;
 * - `reconnecting`: its connection broke, and the window to come back runs;
 * - `lost`: its lease ended; only a new join brings it back.
 */
export type NodeState = 'expected' | 'connected' | 'reconnecting' | 'lost';

/** Why a lease ended: nothing was heard, or the connection broke and stayed so. */
export type LossCause = 'silence' | 'reset';

/** A change that others act on. Times are on the clock of the caller, milliseconds. */
export type Transition =
  | { readonly kind: 'alive'; readonly nodeId: NodeId; readonly atMs: number }
  | {
      readonly kind: 'lost';
      readonly nodeId: NodeId;
      readonly atMs: number;
      readonly cause: LossCause;
    };

/** What a renewal met. A `lost` or `unknown` node has to join again, with its inventory. */
export type Renewal = 'renewed' | 'lost' | 'unknown';

/**
 * Which nodes are trusted. It has no clock: every method takes `nowMs`, monotonic milliseconds of
 * the caller's clock, so that wall clocks of any machine play no part. A lease ends only in
 * `sweep`: a renewal that comes before it counts, however late.
 */
export interface Membership {
  /**
   * A session has begun. Its number goes to `connectionLost`, so that the late end of an older
   * session of the same node changes nothing.
   */
  join(nodeId: NodeId, nowMs: number): number;
  /**
   * The node was heard; also one that is expected, which is on its way to join again, so it is not
   * lost meanwhile.
   */
  renew(nodeId: NodeId, nowMs: number): Renewal;
  /** The connection of a session broke. Without a session number the newest is meant. */
  connectionLost(nodeId: NodeId, nowMs: number, session?: number): void;
  /** The node is forgotten; no transition tells of it. */
  leave(nodeId: NodeId): void;
  /**
   * Ends leases that are due and returns what has changed since the last sweep, in the order of
   * time.
   */
  sweep(nowMs: number): readonly Transition[];
  /**
   * Our own loop stood still for `lagMs`, so nothing could be heard meanwhile: every running lease
   * and window is longer by it.
   */
  freeze(lagMs: number): void;
  /**
   * After a change of the leader: every node that is not lost gets a full lease, and so does each
   * of `registered`, known or not, lost or not. A leader that has just begun cannot know who was
   * silent before.
   * @param extraMs - Added to the lease until a node is heard for the first time, as many cannot
   *   come back all at once. Default 0.
   */
  startAllFresh(nowMs: number, registered?: Iterable<NodeId>, extraMs?: number): void;
  /**
   * When the next lease or window ends unless something is heard; undefined when none runs.
   * Sweeping earlier changes nothing.
   */
  nextDeadline(): number | undefined;
  stateOf(nodeId: NodeId): NodeState | undefined;
  /** How many nodes are in each state. */
  counts(): Readonly<Record<NodeState, number>>;
}

/** @throws an assertion when the window is longer than the lease, or one of them is not above 0. */
export function createMembership(options: MembershipOptions = {}): Membership {
  return new LeaseTable(
    options.leaseMs ?? DEFAULT_LEASE_MS,
    options.reconnectWindowMs ?? DEFAULT_RECONNECT_WINDOW_MS,
  );
}

/** Three renewals of 900 ms and a margin: two lost packets are no loss. */
const DEFAULT_LEASE_MS = 3_000;
/** A crashed agent does not come back so soon; a proxy that closed a connection lets it. */
const DEFAULT_RECONNECT_WINDOW_MS = 250;
/**
 * From this many nodes on, resets of more than half at once are a matter of the network, not of
 * agents.
 */
const MASS_RESET_NODES = 4;

interface Entry {
  state: NodeState;
  session: number;
  /** When it was last heard, on the frozen clock. */
  heardAt: number;
  /**
   * When its window to reconnect began, likewise; Infinity when the lease decides instead. Matters
   * while `reconnecting`.
   */
  windowFrom: number;
}

class LeaseTable implements Membership {
  private readonly entries = new Map<NodeId, Entry>();
  private readonly tally: Record<NodeState, number> = {
    expected: 0,
    connected: 0,
    reconnecting: 0,
    lost: 0,
  };
  private pending: Transition[] = [];
  private sessions = 0;
  /**
   * The sum of all lags. Times are kept on a clock that stood still for as long, so a lag moves
   * every deadline at once.
   */
  private frozenMs = 0;

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
    const heardAt = nowMs - this.frozenMs;
    const entry = this.entries.get(nodeId);
    const wasTrusted = entry?.state === 'connected' || entry?.state === 'reconnecting';
    if (!wasTrusted) this.pending.push({ kind: 'alive', nodeId, atMs: nowMs });
    if (entry === undefined) {
      this.add(nodeId, { state: 'connected', session, heardAt, windowFrom: 0 });
    } else {
      this.move(entry, 'connected');
      entry.session = session;
      entry.heardAt = wasTrusted ? Math.max(entry.heardAt, heardAt) : heardAt;
    }
    return session;
  }

  renew(nodeId: NodeId, nowMs: number): Renewal {
    const entry = this.entries.get(nodeId);
    if (entry === undefined) return 'unknown';
    if (entry.state === 'lost') return 'lost';
    entry.heardAt = Math.max(entry.heardAt, nowMs - this.frozenMs);
    return 'renewed';
  }

  connectionLost(nodeId: NodeId, nowMs: number, session?: number): void {
    const entry = this.entries.get(nodeId);
    if (entry?.state !== 'connected' || (session !== undefined && session !== entry.session))
      return;
    this.move(entry, 'reconnecting');
    entry.windowFrom = nowMs - this.frozenMs;
  }

  leave(nodeId: NodeId): void {
    const entry = this.entries.get(nodeId);
    if (entry === undefined) return;
    this.tally[entry.state] -= 1;
    this.entries.delete(nodeId);
    this.pending = this.pending.filter((transition) => transition.nodeId !== nodeId);
  }

  sweep(nowMs: number): readonly Transition[] {
    const massReset = this.isMassReset();
    for (const [nodeId, entry] of this.entries) {
      // Sticky: the last of many to come back has as long as the first.
      if (massReset && entry.state === 'reconnecting') entry.windowFrom = Infinity;
      if (entry.state === 'lost' || this.deadlineOf(entry, massReset) + this.frozenMs > nowMs)
        continue;
      const cause =
        entry.state === 'reconnecting' && entry.windowFrom !== Infinity ? 'reset' : 'silence';
      this.pending.push({ kind: 'lost', nodeId, atMs: nowMs, cause });
      this.move(entry, 'lost');
    }
    const transitions = this.pending;
    this.pending = [];
    return transitions;
  }

  freeze(lagMs: number): void {
    this.frozenMs += Math.max(0, lagMs);
  }

  startAllFresh(nowMs: number, registered: Iterable<NodeId> = [], extraMs = 0): void {
    const heardAt = nowMs - this.frozenMs + extraMs;
    for (const entry of this.entries.values()) {
      entry.heardAt = Math.max(entry.heardAt, heardAt);
      if (entry.state === 'reconnecting') this.move(entry, 'expected');
    }
    for (const nodeId of registered) {
      const entry = this.entries.get(nodeId);
      if (entry === undefined)
        this.add(nodeId, { state: 'expected', session: 0, heardAt, windowFrom: 0 });
      else if (entry.state === 'lost') this.move(entry, 'expected');
    }
  }

  nextDeadline(): number | undefined {
    const massReset = this.isMassReset();
    let next = Infinity;
    for (const entry of this.entries.values()) {
      if (entry.state !== 'lost') next = Math.min(next, this.deadlineOf(entry, massReset));
    }
    return next === Infinity ? undefined : next + this.frozenMs;
  }

  stateOf(nodeId: NodeId): NodeState | undefined {
    return this.entries.get(nodeId)?.state;
  }

  counts(): Readonly<Record<NodeState, number>> {
    return { ...this.tally };
  }

  /**
   * Many connections break at once when we or the network fail, not when agents crash: then the
   * lease decides, not the window.
   */
  private isMassReset(): boolean {
    const { expected, connected, reconnecting } = this.tally;
    return (
      reconnecting >= MASS_RESET_NODES && reconnecting * 2 > expected + connected + reconnecting
    );
  }

  private deadlineOf(entry: Entry, massReset: boolean): number {
    const lease = entry.heardAt + this.leaseMs;
    return entry.state === 'reconnecting' && !massReset
      ? Math.min(lease, entry.windowFrom + this.reconnectWindowMs)
      : lease;
  }

  private add(nodeId: NodeId, entry: Entry): void {
    this.entries.set(nodeId, entry);
    this.tally[entry.state] += 1;
  }

  private move(entry: Entry, state: NodeState): void {
    this.tally[entry.state] -= 1;
    this.tally[state] += 1;
    entry.state = state;
  }
}
