import type {
  Condition,
  DrainStatus,
  ExplainWorkloadResponse,
  NodeStatus_Phase,
  NodeUsage,
  ReplicaStatus,
  Workload,
  WorkloadPlan,
  WorkloadSpec,
} from '@cloudless/api';
import type { NodeRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock, Log, Meter, Random, Tracer } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { HandlerContext } from '@connectrpc/connect';

/** What is known of a node now. */
export interface NodeNow {
  readonly phase: NodeStatus_Phase;
  readonly alive: boolean;
  readonly reason: string;
  readonly memoryPressure: boolean;
  readonly diskPressure: boolean;
  readonly networkUnavailable: boolean;
  /** Its container runtime does not answer. */
  readonly containersUnavailable: boolean;
  readonly quarantined: boolean;
  readonly reliability: number;
  readonly usage?: NodeUsage;
  readonly connectedSinceMs?: number;
  readonly lastSeenMs?: number;
}

/** Liveness of nodes: told of sessions, asked for status. */
export interface NodeLiveness {
  connected(nodeId: string): number;
  heard(nodeId: string): void;
  disconnected(nodeId: string, session: number): void;
  report(nodeId: string, conditions: readonly Condition[], usage?: NodeUsage): void;
  forget(nodeId: string): void;
  /** Somebody has made sure that it is dead: it holds no replacement back. */
  confirmLost(nodeId: string): void;
  status(nodeId: string): NodeNow;
  subscribe(listener: (nodeId: string) => void): () => void;
  /** Called with the id of a node that has reported its usage. */
  onUsage(listener: (nodeId: string) => void): () => void;
}

/** Makes the API's picture of records. */
export interface Pictures {
  read(record: WorkloadRecord, full: boolean): Workload;
  readReplica(replica: ReplicaRecord): ReplicaStatus;
}

/**
 * A change of one workload: as it is (absent when it would be created) and the spec it would have.
 */
export interface PlanSubject {
  readonly namespace: string;
  readonly name: string;
  readonly current: WorkloadRecord | undefined;
  readonly spec: WorkloadSpec;
}

/** Plans changes one after the other: each in the world that those before it would have left. */
export interface PlanAhead {
  change(subject: PlanSubject): WorkloadPlan;
  /** What becomes of each workload on a node. @param node - As the drain would leave its record. */
  drain(node: NodeRecord): readonly WorkloadPlan[];
}

/** Plans, with all of their steps, and explanations. */
export interface Planning {
  plan(subject: PlanSubject): WorkloadPlan;
  ahead(): PlanAhead;
  explain(record: WorkloadRecord): ExplainWorkloadResponse;
}

/** Facts of placement that the node calls show. */
export interface Placements {
  allocatedOn(nodeId: string): {
    readonly cpuMillis: number;
    readonly memoryBytes: number;
    readonly replicas: number;
  };
  /** The agent's word with the users' over it. */
  effective(record: NodeRecord): Pick<NodeRecord, 'taints'> & {
    readonly region: string;
    readonly zone: string;
    readonly labels: Readonly<Record<string, string>>;
  };
  /** What identifies a taint on a node. */
  taintKey(taint: { readonly key: string; readonly effect: number }): string;
  /** How far the drain of a node is; undefined when there is none. */
  drainOf(record: NodeRecord): DrainStatus | undefined;
}

/** The connection a call came in on. */
export interface CallConnection {
  /** Where the caller is; empty inside of one process. */
  readonly remoteAddress: string;
  onPing(listener: () => void): () => void;
  onClose(listener: () => void): () => void;
}

/** How often and how long agents speak, milliseconds. */
export interface SessionTimings {
  readonly leaseMs: number;
  readonly pingMs: number;
  readonly usageMs: number;
}

/** Needs of the handlers. */
export interface ApiServerDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly nodes: NodeLiveness;
  readonly pictures: Pictures;
  readonly planning: Planning;
  readonly placements: Placements;
  /** Why the limits of a spec leave an update no move; undefined when there is one. */
  readonly impossibleLimitsOf: (spec: WorkloadSpec) => string | undefined;
  readonly connectionOf: (context: HandlerContext) => CallConnection | undefined;
  /** Of the program, as in `0.1.0`. */
  readonly version: string;
  readonly timings: SessionTimings;
  /** Default: nothing is measured. */
  readonly meter?: Meter;
  /** Default: nothing is traced. */
  readonly tracer?: Tracer;
}
