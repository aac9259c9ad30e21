import {
  NodeStatus_Phase as NodePhase,
  type Condition,
  type NodeUsage,
  type ReplicaUsage,
} from '@cloudless/api';
import type { NodeLiveStatus } from '@cloudless/cluster-state';
import type { NodeLiveness } from '../ports.js';

/** Node liveness without leases: a test ends the lease of a node by `setPhase(nodeId, LOST)`. */
export class FakeNodes implements NodeLiveness {
  /** Number of calls of `renewLease`, by node id. */
  readonly renewals = new Map<string, number>();
  /** The last `loopAgeMs` passed to `renewLease`, by node id. */
  readonly loopAges = new Map<string, number>();
  /** The last conditions passed to `updateStatus`, by node id. */
  readonly conditions = new Map<string, readonly Condition[]>();
  /** The last usage of replicas, by node id. */
  readonly replicaUsage = new Map<string, readonly ReplicaUsage[]>();
  /** Ids of the nodes passed to `confirmLost`. */
  readonly confirmed: string[] = [];
  private readonly phases = new Map<string, NodePhase>();
  private readonly sessions = new Map<string, number>();
  private readonly usage = new Map<string, NodeUsage>();
  private readonly listeners = new Set<(nodeId: string) => void>();
  private readonly usageListeners = new Set<(nodeId: string) => void>();
  private lastSession = 0;

  startSession(nodeId: string): number {
    this.lastSession += 1;
    this.sessions.set(nodeId, this.lastSession);
    this.setPhase(nodeId, NodePhase.READY);
    return this.lastSession;
  }

  renewLease(nodeId: string, loopAgeMs = 0): void {
    this.loopAges.set(nodeId, loopAgeMs);
    this.renewals.set(nodeId, (this.renewals.get(nodeId) ?? 0) + 1);
  }

  endSession(nodeId: string, session: number): void {
    if (this.sessions.get(nodeId) !== session) return;
    this.sessions.delete(nodeId);
    if (this.phases.get(nodeId) === NodePhase.READY) this.setPhase(nodeId, NodePhase.DISCONNECTED);
  }

  leaveSession(nodeId: string, session: number): void {
    if (this.sessions.get(nodeId) !== session) return;
    this.sessions.delete(nodeId);
    this.setPhase(nodeId, NodePhase.AWAY);
  }

  updateStatus(
    nodeId: string,
    conditions: readonly Condition[],
    { usage, replicas }: Parameters<NodeLiveness['updateStatus']>[2] = {},
  ): void {
    this.conditions.set(nodeId, conditions);
    if (replicas !== undefined) this.replicaUsage.set(nodeId, replicas);
    if (usage === undefined) return;
    this.usage.set(nodeId, usage);
    for (const listener of this.usageListeners) listener(nodeId);
  }

  removeNode(nodeId: string): void {
    this.phases.delete(nodeId);
  }

  confirmLost(nodeId: string): void {
    this.confirmed.push(nodeId);
  }

  status(nodeId: string): NodeLiveStatus {
    const phase = this.phases.get(nodeId) ?? NodePhase.UNKNOWN;
    const usage = this.usage.get(nodeId);
    return {
      phase,
      alive: this.isAlive(nodeId),
      reason: '',
      memoryPressure: false,
      diskPressure: false,
      networkUnavailable: false,
      containersUnavailable: false,
      diskFull: false,
      diskFullReason: '',
      processesProblem: '',
      networkProxyProblem: '',
      agentSlow: false,
      agentSlowReason: '',
      quarantined: false,
      reliability: 1,
      ...(usage === undefined ? {} : { usage }),
    };
  }

  isAlive(nodeId: string): boolean {
    return this.phases.get(nodeId) === NodePhase.READY;
  }

  subscribe(listener: (nodeId: string) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  onUsage(listener: (nodeId: string) => void): () => void {
    this.usageListeners.add(listener);
    return () => this.usageListeners.delete(listener);
  }

  /** Sets the phase of a node and notifies the subscribers. */
  setPhase(nodeId: string, phase: NodePhase): void {
    this.phases.set(nodeId, phase);
    for (const listener of this.listeners) listener(nodeId);
  }
}
