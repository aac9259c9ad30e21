import type { ReplicaPhase } from './replica/replica-state.js';

/** Who this agent is. */
export interface AgentIdentity {
  readonly nodeId: string;
  /** Made once on this machine: tells it from another one with the same name. */
  readonly instanceId: string;
  /** Absent until a coordinator has enrolled the node. */
  readonly clusterId?: string;
  /** Newest leadership this agent has heard of; orders of older ones are refused. */
  readonly highestEpoch: bigint;
}

/**
 * What is kept of one replica: its orders, which count, and how far it got, which only spares work
 * after a restart.
 */
export interface StoredReplica {
  readonly replicaId: string;
  readonly workloadUid: string;
  /** Bytes of the newest start `Order`; absent when none came. */
  readonly start?: Uint8Array;
  /** Bytes of the newest stop or forget `Order`. */
  readonly end?: Uint8Array;
  readonly heldRevision: bigint;
  /** The boot of the machine during which the newest order came. */
  readonly bootId: string;
  readonly progress: StoredProgress;
}

/** How far a replica got. May be a little old: what really runs is asked of the runtime. */
export interface StoredProgress {
  readonly phase: ReplicaPhase;
  readonly reason: string;
  readonly restarts: number;
  readonly failures: number;
  readonly lastExitCode?: number;
  /** Why the last container ended. */
  readonly lastEndReason?: string;
  /** What the last container that failed wrote last. */
  readonly lastLines?: readonly string[];
  /** The newest container, whether its end has been acted upon, and whether it was ready. */
  readonly containerId?: string;
  readonly containerEnded: boolean;
  readonly ready: boolean;
  /** It was being ended by us, as a probe had failed: what the probe said. */
  readonly killing?: string;
}

/** All that an agent remembers. */
export interface StoredAgent {
  readonly identity?: AgentIdentity;
  readonly replicas: readonly StoredReplica[];
}

/**
 * An agent's memory over its restarts. A save is on disk when its promise resolves, and a crash in
 * the middle of it leaves the older or the newer value. The caller saves one replica once at a
 * time.
 */
export interface AgentStore {
  /**
   * @throws kind `internal` when what is kept is damaged: it must not be taken for an empty memory.
   */
  load(): Promise<StoredAgent>;
  saveIdentity(identity: AgentIdentity): Promise<void>;
  saveReplica(replica: StoredReplica): Promise<void>;
  /** Unknown is no error. */
  removeReplica(replicaId: string): Promise<void>;
}
