import type { HandlerContext } from '@connectrpc/connect';
import type {
  Condition,
  ExplainWorkloadResponse,
  ProposeMovesRequest,
  ProposeMovesResponse,
  ReplicaStatus,
  SimulateClusterResponse,
  TrafficReport,
  Usage,
  Workload,
  WorkloadPlan,
  WorkloadPlan_Action,
  WorkloadSpec,
} from '@cloudless/api';
import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import type { Clock, Log, Meter, Random, StopSignal, Tracer } from '@cloudless/base';
import type {
  ClusterState,
  ClusterView,
  ListedReplicas,
  NodeLiveStatus,
  NodeSubject,
  PlanSubject,
  SimulatedChanges,
} from '@cloudless/cluster-state';
import type { Principal } from '@cloudless/identity';
import type { Caller } from './access/caller.js';
import type { RenewedCertificate } from './access/certificate-authentication.js';
import type { IdentityPort } from './access/identity-port.js';
import type { SecretKeys } from './secret/secret-keys.js';
import type { KnownLeader } from './roles/leader-directory.js';

/** The live status of nodes, as far as reads show it. */
export type LivenessView = Pick<NodeLiveness, 'status' | 'isAlive' | 'subscribe' | 'onUsage'>;

/** Sessions, leases and live status of nodes. Kept in memory by the leader. */
export interface NodeLiveness {
  /**
   * Marks the node as connected and begins its lease.
   * @returns The number of the session, for {@link endSession}.
   */
  startSession(nodeId: string): number;
  /**
   * Extends the lease of a node by a full lease duration. Called for each message and ping.
   * @param loopAgeMs - Milliseconds since the main loop of the agent last turned. Default 0.
   */
  renewLease(nodeId: string, loopAgeMs?: number): void;
  /**
   * Marks the node as disconnected; its lease runs on. Without effect when a newer session of the
   * node has started.
   */
  endSession(nodeId: string, session: number): void;
  /**
   * Marks the node as away: its agent left in good order, its replicas continue, and the agent may
   * return within the leave grace. Without effect when a newer session of the node has started.
   */
  leaveSession(nodeId: string, session: number, reason: string): void;
  /** Stores the conditions of a node, and its usage and that of its replicas when given. */
  updateStatus(
    nodeId: string,
    conditions: readonly Condition[],
    report?: Partial<Pick<Usage, 'usage' | 'replicas'>>,
  ): void;
  /** Deletes all live state of a node that was removed from the cluster. */
  removeNode(nodeId: string): void;
  /** Records that a user confirmed the loss of a node: the node no longer delays replacements. */
  confirmLost(nodeId: string): void;
  /** Returns the live status of a node; phase UNKNOWN for an unknown node. */
  status(nodeId: string): NodeLiveStatus;
  /** The value of `status(nodeId).alive`, without the other values. */
  isAlive(nodeId: string): boolean;
  /**
   * Calls the listener with the id of each node whose liveness or conditions changed.
   * @returns A function that ends the subscription.
   */
  subscribe(listener: (nodeId: string) => void): () => void;
  /**
   * Calls the listener with the id of each node that reports its usage.
   * @returns A function that ends the subscription.
   */
  onUsage(listener: (nodeId: string) => void): () => void;
}

/** Builds the API messages of workloads and replicas from records. */
export interface WorkloadPresenterPort {
  /**
   * @param full - True: the status lists replicas and versions. False: only their numbers.
   * @param listed - The replicas to list instead. Default: the oldest.
   */
  present(record: WorkloadRecord, full: boolean, listed?: ListedReplicas): Workload;
  /**
   * Returns the message of `present` with replicas and versions, for a response in the binary
   * format: the replicas are encoded in the unknown fields of the status, and `status.replicas` is
   * empty.
   */
  presentWithEncodedReplicas(record: WorkloadRecord): Workload;
  presentReplica(replica: ReplicaRecord): ReplicaStatus;
  /**
   * Returns the message of `present` for a record of the current view, encoded behind its length as
   * a varint. The bytes are shared: do not change them.
   */
  encode(record: WorkloadRecord, full: boolean): Uint8Array;
  /** Returns the message of `presentReplica`, encoded behind its length as a varint. */
  encodeReplica(replica: ReplicaRecord): Uint8Array;
  /**
   * Returns the weights with which network proxies choose the replicas of a workload now. They
   * differ while a canary step gives a percentage of the connections.
   */
  describeWeights(workload: WorkloadRecord): (replica: ReplicaRecord) => number;
}

/**
 * Predicts changes one after the other, each on top of the changes before it. The predictions yield
 * whenever other work should run.
 */
export interface DryRunPlannerPort {
  /** Adds a node as a change would leave it. Call it for all nodes before the first pause. */
  putNode(subject: NodeSubject): void;
  planChange(subject: PlanSubject): Generator<void, WorkloadPlan>;
  /** Predicts the deletion of a workload. */
  planDeletion(workload: WorkloadRecord): Generator<void, WorkloadPlan>;
  /**
   * Predicts that a rollout is paused, resumed or promoted.
   * @param control - The control record as the change would write it.
   */
  planRollout(
    action: WorkloadPlan_Action,
    workload: WorkloadRecord,
    control: ControlRecord,
  ): Generator<void, WorkloadPlan>;
  /** Predicts the effect of the change of a node on each workload that it moves or places. */
  planMoves(nodeId: string): Generator<void, readonly WorkloadPlan[]>;
}

/** Predicts changes with a planner that starts at the state of one moment. */
export type Prediction<Result> = (planner: DryRunPlannerPort) => Generator<void, Result>;

/** Predicts changes, with all of their steps, and explains placements. Changes nothing. */
export interface DryRunPort {
  /**
   * Predicts in slices, between which other work runs, one prediction at a time.
   * @param predict - Reads the state before it yields for the first time: that is the state of the
   *   planner. The state is newer after a pause.
   * @throws the error of `predict`; StoppedError when the signal is aborted.
   */
  predict<Result>(predict: Prediction<Result>, signal?: StopSignal): Promise<Result>;
  /** Predicts without a pause, for a decision that is committed on the current state. */
  predictAtOnce<Result>(predict: Prediction<Result>): Result;
  /** Explains for each node whether a replica of the workload fits there, and why not. */
  explain(record: WorkloadRecord): ExplainWorkloadResponse;
}

/** The number of replicas that hold resources on a node, and the sum of their requests. */
export interface NodeAllocation {
  readonly cpuMillis: number;
  readonly memoryBytes: number;
  readonly storageBytes: number;
  /** Egress bandwidth in bits per second. */
  readonly bandwidthBps: number;
  readonly gpus: number;
  /** Amounts above 0 of custom resources, by name. */
  readonly custom: Readonly<Record<string, number>>;
  readonly replicas: number;
}

/** A state of the cluster, opened for one simulation. Close it after use. */
export interface SimulatedState {
  /**
   * The records, for the validation of the changes in the turn of the event loop of the opening.
   */
  readonly view: ClusterView;
  /**
   * Predicts the effect of changes, in slices between which other work runs. Call it in the turn of
   * the event loop in which the state was opened.
   * @throws when the signal is aborted.
   */
  simulate(changes: SimulatedChanges, signal: StopSignal): Promise<SimulateClusterResponse>;
  close(): void;
}

/** Opens states of the cluster for simulations. */
export interface WhatIfPort {
  openCurrent(): SimulatedState;
  /**
   * @throws kind `compacted` when the history no longer contains the revision, `exhausted` when the
   *   cluster is too large.
   */
  openRevision(revision: bigint): Promise<SimulatedState>;
  /**
   * Proposes moves of replicas that spread workloads more evenly, in slices.
   * @throws when the signal is aborted.
   */
  proposeMoves(request: ProposeMovesRequest, signal: StopSignal): Promise<ProposeMovesResponse>;
  /** Encodes the current state for simulations outside the cluster, without secrets. */
  encodeSnapshot(): Generator<Uint8Array>;
}

/** Sums of the resources that replicas hold on nodes. */
export interface NodeAllocations {
  /** Returns the sums of a node. All 0 for a node without replicas and for an unknown node. */
  getAllocated(nodeId: string): NodeAllocation;
}

/** A network proxy that reads the feed. */
export interface NetworkFeedReader {
  /**
   * Yields encoded messages of type NetworkUpdate until `signal` is aborted: everything, or what
   * has changed since the position of the reader, then each change. A reader that is too slow
   * receives everything again.
   */
  read(signal: StopSignal): AsyncIterable<Uint8Array>;
  /** Records that the proxy has applied all updates up to a revision. */
  acknowledge(revision: bigint): void;
  /** Records the traffic that the proxy has counted. */
  addTraffic(report: TrafficReport): void;
  /** Removes the reader. A repeated call does nothing. */
  close(): void;
}

/** Feed of the network proxies of nodes. */
export interface NetworkFeedPort {
  /**
   * Adds a reader. Close it.
   * @param position - Feed and revision of the last complete update that the proxy has applied.
   *   `feedId` empty: the proxy has applied none.
   */
  open(position: {
    readonly nodeId: string;
    readonly feedId: string;
    readonly revision: bigint;
  }): NetworkFeedReader;
  /** Returns true when proxies may know a replica as an endpoint of a service. */
  hasEndpoint(replica: Pick<ReplicaRecord, 'id' | 'uid'>): boolean;
  /**
   * Returns true when no connected proxy chooses a leaving replica for new connections any more.
   */
  isGone(replicaId: string): boolean;
  /**
   * Calls the listener once for each leaving replica, as soon as no connected proxy chooses the
   * replica for new connections any more.
   * @returns A function that ends the subscription.
   */
  onGone(listener: (replicaIds: readonly string[]) => void): () => void;
}

/** The connection that a call arrived on. */
export interface CallConnection {
  /** Address of the client. Empty for calls within one process. */
  readonly remoteAddress: string;
  /**
   * Calls the listener for each HTTP/2 PING of the client.
   * @returns A function that ends the subscription.
   */
  onPing(listener: () => void): () => void;
  /**
   * Calls the listener when the connection ends.
   * @returns A function that ends the subscription.
   */
  onClose(listener: () => void): () => void;
}

/** Intervals that the coordinator sends to each agent at the start of a session. */
export interface SessionTimings {
  /** Time after the last message or ping of an agent at which its lease ends. */
  readonly leaseMs: number;
  /** Interval at which agents send pings. */
  readonly pingMs: number;
  /** Interval at which agents report usage and conditions. */
  readonly usageMs: number;
}

/** What the reads need that every coordinator serves, whether it leads or follows. */
export interface ReadDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly nodes: LivenessView;
  readonly presenter: WorkloadPresenterPort;
  readonly placements: NodeAllocations;
  /**
   * Returns the client of a call, as `Authenticator.authorize` has returned it. Default: the client
   * of every call is `anonymous@loopback`. Required with `identity`.
   */
  readonly getCaller?: (context: HandlerContext) => Caller | undefined;
  /**
   * The keys of secrets. Default: the coordinator has no key-encryption key, and SecretsService
   * refuses all calls.
   */
  readonly secretKeys?: SecretKeys;
  /** Absent in a cluster without TLS, which has no users. */
  readonly identity?: IdentityPort;
  /** Version of the program, such as `0.1.0`. */
  readonly version: string;
  /** Id of this coordinator, the name in its identity `/controller/<id>`. Default: empty. */
  readonly coordinatorId?: string;
}

/** The ports and settings that the coordinator passes to {@link createApiServer}. */
export interface ApiServerDeps extends ReadDeps {
  readonly nodes: NodeLiveness;
  readonly dryRun: DryRunPort;
  readonly whatIf: WhatIfPort;
  readonly network: NetworkFeedPort;
  /**
   * Explains why the limits of a rollout in a spec permit no step, for people; undefined when a
   * step is possible.
   */
  readonly explainImpossibleLimits: (spec: WorkloadSpec) => string | undefined;
  /** Returns the connection of a call; undefined for a call within one process. */
  readonly getConnection: (context: HandlerContext) => CallConnection | undefined;
  /**
   * Makes a renewed certificate count for the connection of a caller; `replaceCredential` of
   * `Authenticator`. Default: nothing.
   */
  readonly replaceCredential?: (caller: Caller, certificate: RenewedCertificate) => void;
  /**
   * Returns the principal of a client certificate; `identifyCertificate` of `Authenticator`.
   * Default: users cannot call agents.
   * @param chainDer - The certificate of the client and those above, DER.
   * @throws {@link CloudlessError} of kind `unauthenticated` or `denied` for an invalid certificate.
   */
  readonly identifyCertificate?: (chainDer: readonly Uint8Array[]) => Principal;
  readonly timings: SessionTimings;
  /**
   * Hands the leadership over, and returns the successor; undefined when none has appeared in time.
   * Absent for a coordinator that leads from its start to its end.
   */
  readonly handOver?: () => Promise<KnownLeader | undefined>;
  /** Default: no metrics. */
  readonly meter?: Meter;
  /** Default: no traces. */
  readonly tracer?: Tracer;
}
