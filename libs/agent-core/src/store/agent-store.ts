import type { ReplicaPhase } from '../replica/replica-phase.js';

/** Identity of an agent. Stored on disk, so it survives restarts of the agent. */
export interface AgentIdentity {
  readonly nodeId: string;
  /**
   * Random id, generated once per data directory. Distinguishes two machines that use the same node
   * id.
   */
  readonly instanceId: string;
  /** Absent until a coordinator has enrolled the node. */
  readonly clusterId?: string;
  /** Highest leader epoch that the agent has received. The agent refuses orders of lower epochs. */
  readonly highestEpoch: bigint;
  /** Coordinators that the cluster has named, the newest first. Absent: none. */
  readonly coordinators?: readonly StoredCoordinator[];
}

/** A coordinator that the cluster has named. */
export interface StoredCoordinator {
  /** Id in its identity `/controller/<id>`. */
  readonly id: string;
  /** Base address, such as `https://10.0.0.1:8080`. */
  readonly address: string;
}

/**
 * Stored state of one replica: its newest orders and its progress. The orders are authoritative.
 * The progress only helps the agent to continue after a restart.
 */
export interface StoredReplica {
  readonly replicaId: string;
  readonly workloadUid: string;
  /** Encoded newest start `Order`; absent until the first start order. */
  readonly start?: Uint8Array;
  /** Encoded newest stop or forget `Order`. */
  readonly end?: Uint8Array;
  /** Revision of the newest order. */
  readonly heldRevision: bigint;
  /** Boot id of the machine at the time the newest order was stored. */
  readonly bootId: string;
  /**
   * A stop or forget order was carried out that could not be stored: the replica is never started
   * again. See {@link AgentStore.markStopped}.
   */
  readonly stopped?: true;
  readonly progress: StoredProgress;
}

/**
 * Progress of a replica. May lag behind: after a restart, the runtime's list of containers takes
 * precedence.
 */
export interface StoredProgress {
  readonly phase: ReplicaPhase;
  readonly reason: string;
  /** Restarts in place and failed starts. */
  readonly restarts: number;
  /** How many of `restarts` are failed starts; absent when none is. */
  readonly failedStarts?: number;
  /** Consecutive exits and failed starts; determines the back-off. */
  readonly failures: number;
  readonly lastExitCode?: number;
  /** Reason of the end of the last container, for people. */
  readonly lastEndReason?: string;
  /** Last output lines of the newest container that failed. */
  readonly lastLines?: readonly string[];
  /** Newest container; absent before the first start. */
  readonly containerId?: string;
  /** True when the agent has handled the exit of this container. */
  readonly containerEnded: boolean;
  /** True when this container was ready. */
  readonly ready: boolean;
  /** Set while the agent stops the container because a probe failed: the reason of the probe. */
  readonly killing?: string;
}

/** Everything that an agent stores. */
export interface StoredAgent {
  readonly identity?: AgentIdentity;
  readonly replicas: readonly StoredReplica[];
}

/** Options of a save. */
export interface SaveOptions {
  /**
   * True for a save that a stop needs: when no space is left, it may use the space that the store
   * keeps in reserve. Default: false.
   */
  readonly mayUseReserve?: boolean;
}

/**
 * Durable storage of an agent. A save is on disk when its promise resolves; after a crash during a
 * save, the store holds either the old or the new value. The caller never saves the same replica
 * twice concurrently. A save rejects with kind `exhausted` when no space is left.
 */
export interface AgentStore {
  /**
   * Reads the stored data; empty before the first save.
   * @throws kind `internal` when the stored data is damaged. The caller must not treat damaged data
   *   as an empty store.
   */
  load(): Promise<StoredAgent>;
  /** Saves the identity. May use the space in reserve: without its epoch there is no session. */
  saveIdentity(identity: AgentIdentity): Promise<void>;
  saveReplica(replica: StoredReplica, options?: SaveOptions): Promise<void>;
  /**
   * Sets {@link StoredReplica.stopped} of the stored replica and changes nothing else. Needs no
   * space, so that it succeeds on a full disk. Has no effect for an unknown id.
   */
  markStopped(replicaId: string): Promise<void>;
  /** Removes a replica; has no effect for an unknown id. */
  removeReplica(replicaId: string): Promise<void>;
}
