import {
  NodeStatus_Phase as Phase,
  type Condition,
  type NodeUsage,
  type ReplicaUsage,
  type Usage,
} from '@cloudless/api';
import {
  definedFields,
  noMeter,
  toNodeId,
  type Clock,
  type Log,
  type Meter,
  type NodeId,
  type Timer,
} from '@cloudless/base';
import {
  createMembership,
  createQuarantine,
  createReliability,
  createReplacementBrake,
  type BrakeState,
  type Membership,
  type NodeLease,
} from '@cloudless/membership';
import type { DepartureRecord } from '@cloudless/api/store';
import type { NodeLiveStatus } from '@cloudless/cluster-state';
import { ChangeLog } from '../common/change-log.js';
import {
  haveConditionsChanged,
  readAgentConditions,
  toConditionStatus,
  type AgentConditions,
} from './agent-conditions.js';
import { explainDeparture, formatSeconds, restoreDeparture, type Departure } from './departures.js';
import { explainLoss } from './losses.js';
import { NodeMetrics } from './node-metrics.js';
import { phaseReasons, phases } from './node-phases.js';

export interface NodeDirectoryOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Milliseconds for which a node is trusted after its last message, above 0. */
  readonly leaseMs: number;
  /**
   * Milliseconds within which an agent that left in good order may return before its node is lost.
   * 0: such a node is lost when its lease ends. Default {@link DEFAULT_LEAVE_GRACE_MS}.
   */
  readonly leaveGraceMs?: number;
  /**
   * Milliseconds after the last turn of an agent's main loop at which its node is lost although its
   * lease is renewed. At least `leaseMs`. Default {@link DEFAULT_HUNG_AFTER_MS}, or `leaseMs` if
   * that is longer.
   */
  readonly hungAfterMs?: number;
  readonly meter?: Meter;
}

/** Long enough for the upgrade or restart of an agent. */
export const DEFAULT_LEAVE_GRACE_MS = 60_000;
/** Ten leases of 3 s: longer than a starved machine delays an agent that will continue. */
export const DEFAULT_HUNG_AFTER_MS = 30_000;

/** A node that a new coordinator expects to connect. */
export interface ExpectedNode {
  readonly id: string;
  /** Departure of its agent, which an earlier coordinator has recorded. */
  readonly departure?: DepartureRecord | undefined;
}

/** Last report of a node, kept in memory only. Times are wall-clock milliseconds. */
interface LiveState {
  /** The lease of the node; undefined until the first renewal of a known node. */
  lease: NodeLease | undefined;
  conditions: AgentConditions;
  usage?: NodeUsage;
  /** Usage of replicas in the newest report, with the time of the report on the clock. */
  replicaUsage?: { readonly atMs: number; readonly byId: ReadonlyMap<string, ReplicaUsage> };
  connectedSinceMs?: number;
  lastSeenMs?: number;
}

/**
 * Milliseconds that each registered node adds to all leases after a start, because all nodes
 * reconnect at once: `least` is about the admission of one node in plaintext on one core of a small
 * machine, `most` twice the admission with TLS. Between the two, the leases last while nodes return.
 */
const RETURN_MS_PER_NODE = { least: 2, most: 20 };
/**
 * Time that a start adds to all leases beside that, milliseconds. An agent asks one coordinator after
 * the other who leads. After an outage of the store, a coordinator that does not know that yet
 * answers within a second, and the agent pauses for up to a second after it has asked all: with a
 * lease of 3 s, this is enough for three coordinators and a pause.
 */
const FIND_LEADER_MS = 2_000;
/** Time for which the usage of replicas in a report counts, milliseconds: three reports. */
const USAGE_VALID_MS = 30_000;
/**
 * Milliseconds between two lease sweeps. Short compared with the lease, so that a loss is detected
 * quickly.
 */
const SWEEP_MS = 50;
/**
 * Delay of a sweep in milliseconds above which the coordinator's own event loop was blocked. The
 * leases are then extended by the delay, as no message could be received. Two intervals.
 */
const MAX_SWEEP_DELAY_MS = 100;

/**
 * Liveness and live status of all nodes. A broken connection makes a node DISCONNECTED immediately:
 * nothing new is placed there, and its replicas no longer count as available. The node is LOST only
 * when the lease has ended as well: after a reset connection its replicas most likely continue
 * while the agent restarts. A node whose agent left in good order is AWAY, with the longer grace.
 * A node whose agent's main loop does not turn keeps its session and its replicas, but is not alive.
 */
export class NodeDirectory {
  /**
   * The changes of what {@link isAlive} returns, logged before any listener runs. May contain nodes
   * whose liveness is the same as before.
   */
  readonly liveness = new ChangeLog();
  private readonly membership: Membership;
  private readonly reliability = createReliability();
  private readonly quarantine = createQuarantine();
  private readonly brake = createReplacementBrake();
  /** Nodes in quarantine; listeners are notified when a quarantine ends. */
  private readonly quarantined = new Set<NodeId>();
  private readonly liveStates = new Map<string, LiveState>();
  private readonly listeners = new Set<(nodeId: string) => void>();
  private readonly usageListeners = new Set<(nodeId: string) => void>();
  /** When each lost node was lost, on the monotonic clock, and why, for users. */
  private readonly losses = new Map<string, { readonly atMs: number; readonly reason: string }>();
  /** Departures of the agents that are away. */
  private readonly departures = new Map<string, Departure>();
  private readonly leaveGraceMs: number;
  private readonly hungAfterMs: number;
  /** When this coordinator began to lead, on the monotonic clock. */
  private startedAtMs: number;
  private lastSweepMs: number;
  private timer: Timer | undefined;
  private readonly metrics: NodeMetrics;

  constructor(private readonly options: NodeDirectoryOptions) {
    const { leaseMs, leaveGraceMs = DEFAULT_LEAVE_GRACE_MS } = options;
    this.leaveGraceMs = leaveGraceMs;
    this.hungAfterMs = options.hungAfterMs ?? Math.max(leaseMs, DEFAULT_HUNG_AFTER_MS);
    this.membership = createMembership({
      leaseMs,
      reconnectWindowMs: leaseMs,
      hungAfterMs: this.hungAfterMs,
    });
    this.startedAtMs = options.clock.now();
    this.lastSweepMs = this.startedAtMs;
    this.metrics = new NodeMetrics(options.meter ?? noMeter, () => ({
      quarantined: this.quarantined.size,
      slow: this.membership.counts().slow,
      away: this.membership.counts().away,
      held: this.checkReplacementBrake().kind === 'holding',
    }));
  }

  /**
   * Gives every registered node a full lease plus time to reconnect, continues the graces of agents
   * that are away, and starts the lease sweep.
   * @param registered - The nodes that are expected to have a running agent, or to get one again.
   */
  start(registered: Iterable<ExpectedNode>): void {
    const { clock } = this.options;
    const now = clock.now();
    this.startedAtMs = now;
    const nodes = [...registered];
    const nodeIds = nodes.map(({ id }) => toNodeId(id));
    const { least, most } = RETURN_MS_PER_NODE;
    const leastMs = FIND_LEADER_MS + nodeIds.length * least;
    // Nodes that return late are a sign that the others are late as well, also in a small cluster.
    const mostMs = Math.max(leastMs, this.options.leaseMs, nodeIds.length * most);
    this.membership.renewAll(now, nodeIds, leastMs, mostMs);
    for (const { id, departure: record } of nodes) {
      if (record === undefined) continue;
      const departure = restoreDeparture(record, now);
      this.membership.depart(toNodeId(id), now, departure.graceMs);
      this.departures.set(id, departure);
    }
    this.lastSweepMs = this.options.clock.now();
    this.scheduleSweep();
  }

  /** Stops the lease sweep and the metrics. */
  close(): void {
    this.metrics.close();
    this.timer?.cancel();
    this.timer = undefined;
  }

  /**
   * Calls `listener` with the id of each node whose liveness or conditions change.
   * @returns A function that ends the subscription.
   */
  subscribe(listener: (nodeId: string) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Calls `listener` with the id of each node that reports its usage.
   * @returns A function that ends the subscription.
   */
  onUsage(listener: (nodeId: string) => void): () => void {
    this.usageListeners.add(listener);
    return () => this.usageListeners.delete(listener);
  }

  /**
   * Records the begin of a session and renews the lease.
   * @returns The session's number, for {@link endSession}.
   */
  startSession(nodeId: string): number {
    const { clock } = this.options;
    const session = this.membership.join(toNodeId(nodeId), clock.now());
    this.liveness.record(nodeId);
    this.losses.delete(nodeId);
    this.departures.delete(nodeId);
    const liveState = this.ensureLiveState(nodeId);
    liveState.connectedSinceMs = clock.wallTime();
    liveState.lastSeenMs = clock.wallTime();
    this.reliability.record(toNodeId(nodeId), true, clock.now());
    this.notify(nodeId);
    return session;
  }

  /**
   * Renews the lease of a node. Call it for every message or ping of the node.
   * @param loopAgeMs - Milliseconds since the main loop of the agent last turned. Default 0: the
   *   main loop sent the message.
   */
  renewLease(nodeId: string, loopAgeMs = 0): void {
    const { clock } = this.options;
    const liveState = this.ensureLiveState(nodeId);
    liveState.lease ??= this.membership.find(toNodeId(nodeId));
    const wasAlive = liveState.lease?.state === 'connected';
    liveState.lease?.renew(clock.now(), loopAgeMs);
    if (!wasAlive) this.liveness.record(nodeId);
    liveState.lastSeenMs = clock.wallTime();
  }

  /**
   * Records that the connection of a session ended. Does nothing when a newer session of the node
   * has begun.
   */
  endSession(nodeId: string, session: number): void {
    const { clock } = this.options;
    this.membership.loseConnection(toNodeId(nodeId), clock.now(), session);
    this.liveness.record(nodeId);
    if (this.membership.getState(toNodeId(nodeId)) !== 'reconnecting') return;
    this.reliability.record(toNodeId(nodeId), false, clock.now());
    this.notify(nodeId);
  }

  /**
   * Records that the agent of a session left in good order and that its replicas continue. The node
   * is lost only when the agent does not return within the leave grace. Does nothing when a newer
   * session of the node has begun.
   * @param reason - Reason that the agent gave.
   */
  leaveSession(nodeId: string, session: number, reason: string): void {
    const { clock } = this.options;
    const { leaveGraceMs: graceMs } = this;
    if (graceMs === 0) return this.endSession(nodeId, session);
    if (!this.membership.depart(toNodeId(nodeId), clock.now(), graceMs, session)) return;
    this.liveness.record(nodeId);
    const leftAtMs = clock.wallTime();
    this.departures.set(nodeId, {
      leftAtMs,
      graceMs,
      reason,
      sinceMs: clock.now(),
      restored: false,
    });
    this.reliability.record(toNodeId(nodeId), false, clock.now());
    this.notify(nodeId);
  }

  /** Returns the departure of an agent; undefined while the node is not away. */
  getDeparture(nodeId: string): Departure | undefined {
    return this.membership.getState(toNodeId(nodeId)) === 'away'
      ? this.departures.get(nodeId)
      : undefined;
  }

  /**
   * Returns the milliseconds since the lease of a node that is away would have ended without the
   * grace; undefined when the node is not away. Negative while the lease still runs.
   */
  leaseEndedForMs(nodeId: string): number | undefined {
    const departure = this.getDeparture(nodeId);
    return departure && this.options.clock.now() - departure.sinceMs - this.options.leaseMs;
  }

  /** Records the conditions that an agent reports, and the usage of the node and its replicas. */
  updateStatus(
    nodeId: string,
    conditions: readonly Condition[],
    { usage, replicas }: Partial<Pick<Usage, 'usage' | 'replicas'>> = {},
  ): void {
    const liveState = this.ensureLiveState(nodeId);
    const next = readAgentConditions(conditions);
    const changed = haveConditionsChanged(liveState.conditions, next);
    liveState.conditions = next;
    if (usage !== undefined) liveState.usage = usage;
    if (replicas !== undefined)
      liveState.replicaUsage = {
        atMs: this.options.clock.now(),
        byId: new Map(replicas.map((replica) => [replica.replicaId, replica])),
      };
    if (changed) this.notify(nodeId);
    if (usage !== undefined) for (const listener of this.usageListeners) listener(nodeId);
  }

  /**
   * Returns the usage of a replica in the newest report of its node; undefined when the report is
   * older than {@link USAGE_VALID_MS}.
   */
  getReplicaUsage(nodeId: string, replicaId: string): ReplicaUsage | undefined {
    const usage = this.liveStates.get(nodeId)?.replicaUsage;
    if (usage === undefined || this.options.clock.now() - usage.atMs > USAGE_VALID_MS)
      return undefined;
    return usage.byId.get(replicaId);
  }

  /** Removes all state of a node that was deleted. */
  removeNode(nodeId: string): void {
    this.membership.leave(toNodeId(nodeId));
    this.liveness.record(nodeId);
    this.reliability.forget(toNodeId(nodeId));
    this.quarantine.forget(toNodeId(nodeId));
    this.brake.confirmLost([toNodeId(nodeId)]);
    this.quarantined.delete(toNodeId(nodeId));
    this.liveStates.delete(nodeId);
    this.losses.delete(nodeId);
    this.departures.delete(nodeId);
    this.notify(nodeId);
  }

  /**
   * Returns the milliseconds since this coordinator saw the loss of a node; undefined when the node
   * is not lost.
   */
  lostForMs(nodeId: string): number | undefined {
    const loss = this.losses.get(nodeId);
    return loss && this.options.clock.now() - loss.atMs;
  }

  /**
   * Records that an operator confirmed the loss of a node: the node no longer counts for the
   * replacement brake, and the grace of a node that is away ends.
   */
  confirmLost(nodeId: string): void {
    const id = toNodeId(nodeId);
    this.membership.endGrace(id);
    // Only a sweep makes a node that is away lost, and adds the node to the replacement brake.
    this.sweep(id);
    this.notify(nodeId);
  }

  /**
   * Returns true when a node has a live session and the main loop of its agent turns. Cheap, as
   * every pass calls this function for every replica.
   */
  isAlive(nodeId: string): boolean {
    return this.membership.getState(toNodeId(nodeId)) === 'connected';
  }

  /** Number of nodes for which {@link isAlive} returns true. */
  get aliveCount(): number {
    return this.membership.counts().connected;
  }

  /** Returns the liveness, conditions and usage of a node, also of an unknown one. */
  status(nodeId: string): NodeLiveStatus {
    const id = toNodeId(nodeId);
    const now = this.options.clock.now();
    const state = this.membership.getState(id);
    const liveState = this.liveStates.get(nodeId);
    const phase = state === undefined ? Phase.UNKNOWN : phases[state];
    return {
      phase,
      alive: state === 'connected',
      reason: this.explainPhase(nodeId, phase),
      agentSlow: state === 'slow',
      agentSlowReason: state === 'slow' ? this.explainSlowness(id, now) : '',
      ...toConditionStatus(liveState?.conditions),
      quarantined: this.quarantine.quarantinedUntil(id, now) !== undefined,
      reliability: this.reliability.score(id, now),
      ...definedFields({
        usage: liveState?.usage,
        connectedSinceMs: liveState?.connectedSinceMs,
        lastSeenMs: liveState?.lastSeenMs,
      }),
    };
  }

  /**
   * Evaluates the replacement brake now, which may engage or release it.
   * @returns `holding` while replicas of lost nodes must not be replaced.
   */
  checkReplacementBrake(): BrakeState {
    const { lost: _lost, ...trusted } = this.membership.counts();
    const trustedCount = Object.values(trusted).reduce((sum, count) => sum + count, 0);
    return this.brake.check(this.options.clock.now(), trustedCount);
  }

  private explainPhase(nodeId: string, phase: Phase): string {
    const loss = phase === Phase.LOST ? this.losses.get(nodeId) : undefined;
    if (loss !== undefined) return loss.reason;
    const departure = phase === Phase.AWAY ? this.departures.get(nodeId) : undefined;
    return departure === undefined ? phaseReasons[phase] : explainDeparture(departure);
  }

  private explainSlowness(nodeId: NodeId, now: number): string {
    const age = formatSeconds(this.membership.getLoopAgeMs(nodeId, now) ?? 0);
    return (
      `the main loop of the agent last turned ${age} ago: the machine is starved, or the agent ` +
      `hangs. The node is lost ${formatSeconds(this.hungAfterMs)} after the last turn`
    );
  }

  private scheduleSweep(): void {
    this.timer = this.options.clock.setTimer(SWEEP_MS, () => {
      this.sweep();
      this.scheduleSweep();
    });
  }

  /** @param confirmedId - A node whose loss an operator confirms: the brake does not count it. */
  private sweep(confirmedId?: NodeId): void {
    const now = this.options.clock.now();
    const delayMs = now - this.lastSweepMs - SWEEP_MS;
    this.lastSweepMs = now;
    this.metrics.recordSweep(Math.max(0, delayMs));
    if (delayMs > MAX_SWEEP_DELAY_MS) this.membership.extendLeases(delayMs);
    const transitions = this.membership.sweep(now);
    for (const { nodeId } of transitions) this.liveness.record(nodeId);
    this.brake.apply(transitions);
    if (confirmedId !== undefined) this.brake.confirmLost([confirmedId]);
    // The brake is checked immediately: a later check may fall outside the window within which
    // losses count together.
    if (transitions.length > 0) this.checkReplacementBrake();
    for (const transition of transitions) {
      const { kind, nodeId } = transition;
      if (kind === 'slow' || kind === 'recovered') this.recordSlowness(nodeId, kind === 'slow');
      if (kind !== 'lost') continue;
      const hasConnected = this.liveStates.get(nodeId)?.connectedSinceMs !== undefined;
      this.losses.set(nodeId, {
        atMs: now,
        reason: explainLoss(transition.cause, {
          graceMs: this.departures.get(nodeId)?.graceMs ?? this.leaveGraceMs,
          hungAfterMs: this.hungAfterMs,
          neverConnectedForMs: hasConnected ? undefined : now - this.startedAtMs,
          confirmed: nodeId === confirmedId,
        }),
      });
      this.departures.delete(nodeId);
      this.metrics.recordLoss();
      this.quarantine.recordLoss(nodeId, now);
      this.reliability.record(nodeId, false, now);
      this.options.log.warn('node lost', { nodeId, cause: transition.cause });
      if (this.quarantine.quarantinedUntil(nodeId, now) !== undefined) this.quarantined.add(nodeId);
      this.notify(nodeId);
    }
    for (const nodeId of this.quarantined) {
      if (this.quarantine.quarantinedUntil(nodeId, now) !== undefined) continue;
      this.quarantined.delete(nodeId);
      this.notify(nodeId);
    }
  }

  private recordSlowness(nodeId: NodeId, slow: boolean): void {
    const { clock, log } = this.options;
    if (slow) log.warn('agent is slow', { nodeId });
    else log.info('agent has recovered', { nodeId });
    this.reliability.record(nodeId, this.isAlive(nodeId), clock.now());
    this.notify(nodeId);
  }

  private ensureLiveState(nodeId: string): LiveState {
    const known = this.liveStates.get(nodeId);
    if (known !== undefined) return known;
    const created: LiveState = { lease: undefined, conditions: new Map() };
    this.liveStates.set(nodeId, created);
    return created;
  }

  private notify(nodeId: string): void {
    for (const listener of this.listeners) listener(nodeId);
  }
}
