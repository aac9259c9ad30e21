import type { HandlerContext } from '@connectrpc/connect';
import type {
  Condition,
  ExplainWorkloadResponse,
  NodeUsage,
  ReplicaStatus,
  Workload,
  WorkloadPlan,
  WorkloadSpec,
} from '@cloudless/api';
import type { NodeRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock, Log, Meter, Random, Tracer } from '@cloudless/base';
import type { ClusterState, NodeLiveStatus, PlanSubject } from '@cloudless/cluster-state';

/** Sessions, leases and live status of nodes. */
export interface NodeLiveness {
  startSession(nodeId: string): number;
  renewLease(nodeId: string): void;
  endSession(nodeId: string, session: number): void;
  updateStatus(nodeId: string, conditions: readonly Condition[], usage?: NodeUsage): void;
  removeNode(nodeId: string): void;
  /** A user has confirmed that the machine is dead: the node no longer delays replacements. */
  confirmLost(nodeId: string): void;
  status(nodeId: string): NodeLiveStatus;
  /** True while the node has a live session: `status(nodeId).alive`, without the other values. */
  isAlive(nodeId: string): boolean;
  subscribe(listener: (nodeId: string) => void): () => void;
  /** Calls the listener with the id of each node that reports its usage. */
  onUsage(listener: (nodeId: string) => void): () => void;
}

/** Builds the API messages of workloads and replicas from records. */
export interface WorkloadPresenterPort {
  present(record: WorkloadRecord, full: boolean): Workload;
  presentReplica(replica: ReplicaRecord): ReplicaStatus;
}

/** Predicts changes one after the other, each on top of the changes before it. */
export interface DryRunPlannerPort {
  planChange(subject: PlanSubject): WorkloadPlan;
  /**
   * Predicts the effect of a drain on each workload of the node. @param node - The node record as
   * the drain would write it.
   */
  planDrain(node: NodeRecord): readonly WorkloadPlan[];
}

/** Predicts changes, with all of their steps, and explains placements. */
export interface DryRunPort {
  planChange(subject: PlanSubject): WorkloadPlan;
  createPlanner(): DryRunPlannerPort;
  explain(record: WorkloadRecord): ExplainWorkloadResponse;
}

export interface Placements {
  /**
   * The number of replicas that hold resources on a node, and the sum of their resource requests.
   * All 0 for a node without replicas and for an unknown node.
   */
  getAllocated(nodeId: string): {
    readonly cpuMillis: number;
    readonly memoryBytes: number;
    readonly replicas: number;
  };
}

/** The connection that a call arrived on. */
export interface CallConnection {
  /** Address of the client. Empty for calls within one process. */
  readonly remoteAddress: string;
  onPing(listener: () => void): () => void;
  onClose(listener: () => void): () => void;
}

/** Lease and report intervals of sessions, milliseconds. */
export interface SessionTimings {
  readonly leaseMs: number;
  readonly pingMs: number;
  readonly usageMs: number;
}

export interface ApiServerDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly nodes: NodeLiveness;
  readonly presenter: WorkloadPresenterPort;
  readonly dryRun: DryRunPort;
  readonly placements: Placements;
  /** Explains why the limits of a rollout permit no step; undefined when a step is possible. */
  readonly explainImpossibleLimits: (spec: WorkloadSpec) => string | undefined;
  readonly getConnection: (context: HandlerContext) => CallConnection | undefined;
  /** Version of the program, such as `0.1.0`. */
  readonly version: string;
  readonly timings: SessionTimings;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Default: no traces. */
  readonly tracer?: Tracer;
}
