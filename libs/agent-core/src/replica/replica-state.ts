import type { ContainerId } from '@cloudless/base';
import type { ContainerEndpoint, ContainerStatus } from '@cloudless/runtime';
import type { StoredProgress } from '../store/agent-store.js';
import type { ReplicaPhase } from './replica-phase.js';
import type { ReplicaTarget } from './replica-target.js';

/** Current activity of the agent for a replica. */
export type Activity =
  /** No order has been stored yet. */
  | { readonly kind: 'none' }
  /**
   * The machine was rebooted since the order was stored, or an exclusive replica was without
   * contact for too long: the replica is not started until a coordinator repeats the order.
   */
  | { readonly kind: 'unconfirmed'; readonly exit?: ContainerExit }
  /**
   * The agent was restarted and the container runtime has not answered yet, so the state of the
   * container is not known. Orders are stored and carried out once the runtime lists its
   * containers. `confirmed`: false after a reboot of the machine, until a coordinator repeats the
   * order.
   */
  | { readonly kind: 'unlisted'; readonly progress: StoredProgress; readonly confirmed: boolean }
  /**
   * The start call to the runtime is pending, or the start waits for its image or in the start
   * queue.
   */
  | { readonly kind: 'starting'; readonly containerId: ContainerId }
  | { readonly kind: 'running'; readonly containerId: ContainerId }
  /**
   * The liveness or startup probe has failed, as `reason` says. The container is being stopped,
   * then restarted by the restart policy.
   */
  | { readonly kind: 'killing'; readonly containerId: ContainerId; readonly reason: string }
  /**
   * Waits before the next start. With an id: the runtime may or may not have started this
   * container, so the next attempt uses the same id. `nextStartAtMs`: end of a back-off,
   * milliseconds since the epoch by the clock of this node. Absent when the wait is no back-off,
   * see {@link ReplicaEffect}.
   */
  | {
      readonly kind: 'backingOff';
      readonly containerId?: ContainerId;
      readonly nextStartAtMs?: number;
    }
  /**
   * A stop was ordered; the replica is no longer an endpoint. The replica waits until network
   * proxies have ceased to choose it, then the pre-stop delay runs.
   */
  | { readonly kind: 'leaving'; readonly containerId: ContainerId }
  /** The stop call to the runtime is pending. */
  | { readonly kind: 'terminating'; readonly containerId: ContainerId }
  | { readonly kind: 'ended' };

/** Returns true while a coordinator must repeat the newest order before the replica is started. */
export function isUnconfirmed(activity: Activity): boolean {
  return activity.kind === 'unconfirmed' || (activity.kind === 'unlisted' && !activity.confirmed);
}

/** Exit of a container. */
export interface ContainerExit {
  readonly containerId: ContainerId;
  readonly exitCode: number;
  /** One phrase: `exit code 3`. */
  readonly reason: string;
  /** Running time, milliseconds; 0 when not known. */
  readonly upMs: number;
  /** True when the runtime no longer has the container: there is no exit code and no log. */
  readonly gone?: boolean;
  /**
   * True when the runtime ended the container because its lease was not renewed. The replica is
   * started again only when a coordinator repeats the order.
   */
  readonly leaseEnded?: boolean;
  /** Last output lines of a failed container. */
  readonly lastLines?: readonly string[];
}

type ContainerFact = 'pid' | 'ip' | 'runtime' | 'runtimeId' | 'imageDigest';

/** Newest container of a replica. */
export interface CurrentContainer {
  readonly id: ContainerId;
  readonly startedAtMs: number;
  readonly endpoints: readonly ContainerEndpoint[];
  /** Facts about the container that `get containers` and `describe` show. */
  readonly facts?: { readonly [Fact in ContainerFact]: ContainerStatus[Fact] | undefined };
}

/** Converts the status that a runtime reports. */
export function toCurrentContainer(status: ContainerStatus): CurrentContainer {
  const {
    containerId: id,
    startedAtMs,
    endpoints,
    pid,
    ip,
    runtime,
    runtimeId,
    imageDigest,
  } = status;
  const facts = { pid, ip, runtime, runtimeId, imageDigest };
  return { id, startedAtMs, endpoints, facts };
}

/** Newest image pull of a replica. Times in milliseconds, wall clock. */
export type ImagePull = { readonly image: string; readonly startedAtMs: number } & (
  | { readonly phase: 'pulling' }
  | { readonly phase: 'pulled'; readonly tookMs: number; readonly sizeBytes?: number }
  /** `reason`: the message of the runtime or the registry. */
  | { readonly phase: 'failed'; readonly tookMs: number; readonly reason: string }
);

/** Delays of a stop, milliseconds. */
export interface StopDelays {
  /**
   * Longest wait until no network proxy chooses the replica any more, before the pre-stop delay. 0:
   * no wait.
   */
  readonly endpointsGoneMs: number;
  readonly preStopMs: number;
  readonly graceMs: number;
}

/**
 * A stop or forget order that is carried out although it could not be stored. Until the order is
 * stored, reports do not acknowledge the order, so that the coordinator repeats it.
 */
export interface UnstoredEnd {
  /** Revision of the newest stored order, which reports acknowledge; 0 without one. */
  readonly storedRevision: bigint;
  /**
   * True when the store knows at least that the replica must not be started again. Otherwise the
   * next agent would start the replica, so reports do not say yet that the replica has ended.
   */
  readonly isMarked: boolean;
  /** Phase before the order; reports contain this phase while `isMarked` is false. */
  readonly phase: ReplicaPhase;
  /** Why the order could not be stored, for people. */
  readonly reason: string;
}

/** State of one replica. Immutable; {@link reduceReplica} computes the next state. */
export interface ReplicaState {
  readonly replicaId: string;
  readonly workloadUid: string;
  /** Revision of the newest order; 0 before the first. */
  readonly heldRevision: bigint;
  /**
   * Absent when the agent has only container labels or a stop order: the replica cannot be
   * restarted then.
   */
  readonly target?: ReplicaTarget;
  readonly phase: ReplicaPhase;
  readonly activity: Activity;
  readonly ready: boolean;
  readonly reason: string;
  /**
   * Times that the replica was started, or will be started, again: restarts in place and failed
   * starts. Each attempt has its own number, so each has its own container id.
   */
  readonly restarts: number;
  /**
   * How many of `restarts` follow a start that failed before the container ran. A call that the
   * runtime did not answer is no failed start.
   */
  readonly failedStarts: number;
  /** Consecutive exits and failed starts; determines the back-off. */
  readonly failures: number;
  readonly lastExitCode?: number;
  /** Reason of the end of the last container, for people. */
  readonly lastEndReason?: string;
  /**
   * Last output lines of the newest failed container; empty when no container failed or it wrote
   * nothing.
   */
  readonly lastLines: readonly string[];
  readonly container?: CurrentContainer;
  /** Absent when this agent has made no pull for the replica. */
  readonly imagePull?: ImagePull;
  /** Exited containers that are kept for their logs, oldest first. */
  readonly ended: readonly ContainerId[];
  /** Set once a stop was ordered. */
  readonly stop?: StopDelays;
  /** True once a forget order was accepted. */
  readonly forget: boolean;
  /** Set while the newest stop or forget order is not stored. */
  readonly unstored?: UnstoredEnd;
}

/** Event of a replica. An event that may lead to a start has an id for the new container. */
export type ReplicaEvent =
  | {
      readonly kind: 'startOrdered';
      readonly revision: bigint;
      readonly target: ReplicaTarget;
      readonly newContainerId: ContainerId;
    }
  | {
      readonly kind: 'stopOrdered';
      readonly revision: bigint;
      readonly delays: Partial<StopDelays>;
      readonly reason: string;
    }
  | { readonly kind: 'forgetOrdered'; readonly revision: bigint }
  /** A start order could not be stored, so it is not carried out, for this reason. */
  | { readonly kind: 'startNotStored'; readonly reason: string }
  /** The start order could not be stored for so long that another replica takes its place. */
  | { readonly kind: 'startGivenUp'; readonly reason: string }
  /** The stop or forget order that follows, or the one before, could not be stored. */
  | { readonly kind: 'endNotStored'; readonly unstored: UnstoredEnd }
  /** The newest stop or forget order is stored. */
  | { readonly kind: 'endStored' }
  /** The back-off delay has passed. */
  | { readonly kind: 'startDue'; readonly newContainerId: ContainerId }
  /** The start waits in the start queue. */
  | { readonly kind: 'startQueued'; readonly containerId: ContainerId }
  | { readonly kind: 'started'; readonly status: ContainerStatus }
  /** The image pull of this container has begun or succeeded. */
  | { readonly kind: 'pullChanged'; readonly containerId: ContainerId; readonly pull: ImagePull }
  | {
      readonly kind: 'startFailed';
      readonly containerId: ContainerId;
      readonly reason: string;
      /** True when the container may be running nevertheless. */
      readonly uncertain: boolean;
      /**
       * True when the runtime did not answer, so the attempt does not count as a failure of the
       * replica. Default: the value of `uncertain`.
       */
      readonly unreachable?: boolean;
      /** The failed pull, if a pull failed. */
      readonly pull?: ImagePull;
      readonly lastLines?: readonly string[];
    }
  | { readonly kind: 'exited'; readonly exit: ContainerExit }
  /**
   * An exclusive replica was about to be started, but there was no contact with a coordinator for
   * so long that the replica may have been replaced.
   */
  | { readonly kind: 'outOfContact'; readonly containerId: ContainerId }
  /** Every TCP port of this container has accepted a connection. */
  | { readonly kind: 'accepted'; readonly containerId: ContainerId }
  /** The startup probe of this container has passed. */
  | { readonly kind: 'startedUp'; readonly containerId: ContainerId }
  /**
   * New readiness by the readiness probe; or, while the startup probe has not passed, the reason
   * why that probe does not pass.
   */
  | {
      readonly kind: 'probed';
      readonly containerId: ContainerId;
      readonly ready: boolean;
      readonly reason: string;
    }
  /** The liveness or startup probe of this container has reached its failure threshold. */
  | { readonly kind: 'unhealthy'; readonly containerId: ContainerId; readonly reason: string }
  /**
   * The main process of this container no longer exists, and the runtime has not reported the end
   * of the container.
   */
  | { readonly kind: 'processGone'; readonly containerId: ContainerId }
  /**
   * The runtime has not answered for too long. `uncertain`: a start was requested, so the container
   * may run.
   */
  | { readonly kind: 'runtimeAway'; readonly uncertain: boolean }
  /** No network proxy chooses the replica for new connections any more. */
  /** Files of the replica are outdated for this reason; empty when they no longer are. */
  | { readonly kind: 'filesReported'; readonly reason: string }
  | { readonly kind: 'endpointsGone' }
  /** The wait for network proxies and the pre-stop delay have passed. */
  | { readonly kind: 'stopDue' };

/** Effect to carry out. Its outcome comes back as an event. */
export type ReplicaEffect =
  | { readonly kind: 'start'; readonly containerId: ContainerId }
  /**
   * Starts a container after a delay. `isBackoff`: false when the replica has not failed: the first
   * start, and the next call to a runtime that did not answer.
   */
  | { readonly kind: 'startAfter'; readonly delayMs: number; readonly isBackoff: boolean }
  | {
      readonly kind: 'awaitReady';
      readonly container: CurrentContainer;
      readonly ports: readonly string[];
    }
  /**
   * Runs the probes of the target until the container exits or is stopped. `wasReady`: see {@link
   * ProbedContainer.wasReady}.
   */
  | { readonly kind: 'probe'; readonly container: CurrentContainer; readonly wasReady: boolean }
  | { readonly kind: 'terminateAfter'; readonly delayMs: number }
  | { readonly kind: 'terminate'; readonly containerId: ContainerId; readonly graceMs: number }
  /** Stops and removes a container that may have been started, once the runtime answers. */
  | { readonly kind: 'discard'; readonly containerId: ContainerId }
  | { readonly kind: 'remove'; readonly containerId: ContainerId }
  /** Removes all containers and stored data of the replica. */
  | { readonly kind: 'forget' };

/** New state of a replica and the effects to carry out. */
export interface ReplicaTransition {
  readonly state: ReplicaState;
  readonly effects: readonly ReplicaEffect[];
}

/** Initial state of a replica without orders and containers. */
export function createReplicaState(replicaId: string, workloadUid: string): ReplicaState {
  return {
    replicaId,
    workloadUid,
    heldRevision: 0n,
    phase: 'starting',
    activity: { kind: 'none' },
    ready: false,
    reason: '',
    restarts: 0,
    failedStarts: 0,
    failures: 0,
    lastLines: [],
    ended: [],
    forget: false,
  };
}
