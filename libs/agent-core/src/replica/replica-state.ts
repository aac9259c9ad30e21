import type { ContainerId } from '@cloudless/base';
import type { ContainerEndpoint, ContainerStatus } from '@cloudless/runtime';
import type { ReplicaPlan } from './replica-plan.js';

/**
 * Where a replica is on its one way: `starting → running → stopping → stopped`; `failed` and
 * `succeeded` are ends too.
 */
export type ReplicaPhase = 'starting' | 'running' | 'stopping' | 'stopped' | 'failed' | 'succeeded';

const RANK: Record<ReplicaPhase, number> = {
  starting: 0,
  running: 1,
  stopping: 2,
  stopped: 3,
  failed: 3,
  succeeded: 3,
};

/** Whether a phase may follow another: only forward, and never away from an end. */
export function isForward(from: ReplicaPhase, to: ReplicaPhase): boolean {
  return from === to || RANK[to] > RANK[from];
}

/** Whether a value read from somewhere is a phase. */
export function isPhase(value: unknown): value is ReplicaPhase {
  return typeof value === 'string' && Object.hasOwn(RANK, value);
}

/** Whether nothing of the replica will run any more. */
export function isEnded(phase: ReplicaPhase): boolean {
  return RANK[phase] === 3;
}

/** What is being done for a replica right now. */
export type Activity =
  /** Nothing was ordered yet. */
  | { readonly kind: 'none' }
  /**
   * The machine was restarted since the order came, or an exclusive replica was without contact for
   * too long: nothing is started until a coordinator repeats it.
   */
  | { readonly kind: 'unconfirmed'; readonly exit?: ContainerExit }
  /** The runtime was asked to start this container and has not answered. */
  | { readonly kind: 'starting'; readonly containerId: ContainerId }
  | { readonly kind: 'running'; readonly containerId: ContainerId }
  /**
   * Failed its liveness or startup probe, as `reason` says: the runtime was asked to stop it, and
   * it is restarted by the policy.
   */
  | { readonly kind: 'killing'; readonly containerId: ContainerId; readonly reason: string }
  /**
   * Waits before the next start. With an id: the runtime may or may not have started it, so that id
   * is tried again.
   */
  | { readonly kind: 'backingOff'; readonly containerId?: ContainerId }
  /** Ordered to stop; has left the endpoints, and is given time before SIGTERM. */
  | { readonly kind: 'leaving'; readonly containerId: ContainerId }
  /** The runtime was asked to stop it. */
  | { readonly kind: 'terminating'; readonly containerId: ContainerId }
  | { readonly kind: 'ended' };

/** How a container ended. */
export interface ContainerExit {
  readonly containerId: ContainerId;
  readonly exitCode: number;
  /** One phrase: `exit code 3`. */
  readonly reason: string;
  /** How long it ran, milliseconds; 0 when not known. */
  readonly upMs: number;
  /** The runtime does not know it (any more): there is no exit code and no log. */
  readonly gone?: boolean;
  /**
   * The runtime ended it, as the coordinator was not heard for too long: it is started again only
   * when told to.
   */
  readonly leaseEnded?: boolean;
  /** What it wrote last, when it has failed. */
  readonly lastLines?: readonly string[];
}

type ContainerFact = 'pid' | 'ip' | 'runtime' | 'runtimeId' | 'imageDigest';

/** The newest container that ran. */
export interface CurrentContainer {
  readonly id: ContainerId;
  readonly startedAtMs: number;
  readonly endpoints: readonly ContainerEndpoint[];
  /** Facts about the container that `get containers` and `describe` show. */
  readonly facts?: { readonly [Fact in ContainerFact]: ContainerStatus[Fact] | undefined };
}

/** The container that a runtime tells of. */
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

/** How the newest pull of the image went. Times in milliseconds, wall clock. */
export type ImagePull = { readonly image: string; readonly startedAtMs: number } & (
  | { readonly phase: 'pulling' }
  | { readonly phase: 'pulled'; readonly tookMs: number; readonly sizeBytes?: number }
  /** `reason`: the registry's own words. */
  | { readonly phase: 'failed'; readonly tookMs: number; readonly reason: string }
);

/** Delays of a stop, milliseconds. */
export interface StopDelays {
  readonly preStopMs: number;
  readonly graceMs: number;
}

/** All an agent knows about one replica. Immutable; moved on by {@link reduceReplica}. */
export interface ReplicaState {
  readonly replicaId: string;
  readonly workloadUid: string;
  /** Revision of the newest order; 0 before any. */
  readonly heldRevision: bigint;
  /** Absent when only labels or a stop order are known: then nothing can be restarted. */
  readonly plan?: ReplicaPlan;
  readonly phase: ReplicaPhase;
  readonly activity: Activity;
  readonly ready: boolean;
  readonly reason: string;
  readonly restarts: number;
  /** Ends and failed starts in a row; what the back-off grows with. */
  readonly failures: number;
  readonly lastExitCode?: number;
  /** Why the last container ended. */
  readonly lastEndReason?: string;
  /**
   * What the last container that failed wrote last; empty when none has, or when it wrote nothing.
   */
  readonly lastLines: readonly string[];
  readonly container?: CurrentContainer;
  /** Absent when none was made since the agent began. */
  readonly imagePull?: ImagePull;
  /** Ended containers that are kept for their logs, oldest first. */
  readonly ended: readonly ContainerId[];
  /** Set once it was ordered to stop. */
  readonly stop?: StopDelays;
  /** Set once it was ordered to be forgotten. */
  readonly forget: boolean;
}

/** What happened. Ids of new containers come with the events that may need one. */
export type ReplicaEvent =
  | {
      readonly kind: 'startOrdered';
      readonly revision: bigint;
      readonly plan: ReplicaPlan;
      readonly newContainerId: ContainerId;
    }
  | {
      readonly kind: 'stopOrdered';
      readonly revision: bigint;
      readonly delays: Partial<StopDelays>;
      readonly reason: string;
    }
  | { readonly kind: 'forgetOrdered'; readonly revision: bigint }
  /** The back-off has passed. */
  | { readonly kind: 'startDue'; readonly newContainerId: ContainerId }
  /** Others are being started, and it waits for its turn. */
  | { readonly kind: 'startQueued'; readonly containerId: ContainerId }
  | { readonly kind: 'started'; readonly status: ContainerStatus }
  /** What the start of this container is busy with before its turn. */
  | { readonly kind: 'pullChanged'; readonly containerId: ContainerId; readonly pull: ImagePull }
  | {
      readonly kind: 'startFailed';
      readonly containerId: ContainerId;
      readonly reason: string;
      /** The container may run all the same. */
      readonly uncertain: boolean;
      /**
       * The runtime could not be asked, so this is no failure of the replica. Default: as
       * `uncertain`.
       */
      readonly unreachable?: boolean;
      /** The pull that it failed by. */
      readonly pull?: ImagePull;
      readonly lastLines?: readonly string[];
    }
  | { readonly kind: 'exited'; readonly exit: ContainerExit }
  /**
   * It was about to be started, but the coordinator was not heard for so long that it may have been
   * replaced.
   */
  | { readonly kind: 'outOfContact'; readonly containerId: ContainerId }
  /** Every endpoint of this container has accepted a connection. */
  | { readonly kind: 'accepted'; readonly containerId: ContainerId }
  /** The startup probe of this container has passed. */
  | { readonly kind: 'startedUp'; readonly containerId: ContainerId }
  /** The readiness probe of this container says so; or its startup probe, why it has not passed. */
  | {
      readonly kind: 'probed';
      readonly containerId: ContainerId;
      readonly ready: boolean;
      readonly reason: string;
    }
  /** Its liveness or startup probe has failed by the threshold. */
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
  /** The pre-stop delay has passed. */
  | { readonly kind: 'stopDue' };

/** What is to be done. Effects answer with events. */
export type ReplicaEffect =
  | { readonly kind: 'start'; readonly containerId: ContainerId }
  | { readonly kind: 'startAfter'; readonly delayMs: number }
  | {
      readonly kind: 'awaitReady';
      readonly container: CurrentContainer;
      readonly ports: readonly string[];
    }
  /**
   * Runs the probes of the plan until the container ends or is ended. `wasReady`: as {@link
   * ProbedContainer}.
   */
  | { readonly kind: 'probe'; readonly container: CurrentContainer; readonly wasReady: boolean }
  | { readonly kind: 'terminateAfter'; readonly delayMs: number }
  | { readonly kind: 'terminate'; readonly containerId: ContainerId; readonly graceMs: number }
  /** Ends and removes a container that may have been started, once the runtime answers. */
  | { readonly kind: 'discard'; readonly containerId: ContainerId }
  | { readonly kind: 'remove'; readonly containerId: ContainerId }
  /** Drops all that is kept of the replica. */
  | { readonly kind: 'forget' };

/** The state after an event, and what it asks for. */
export interface Reduced {
  readonly state: ReplicaState;
  readonly effects: readonly ReplicaEffect[];
}

/** A replica of which nothing is known but its name. */
export function newReplica(replicaId: string, workloadUid: string): ReplicaState {
  return {
    replicaId,
    workloadUid,
    heldRevision: 0n,
    phase: 'starting',
    activity: { kind: 'none' },
    ready: false,
    reason: '',
    restarts: 0,
    failures: 0,
    lastLines: [],
    ended: [],
    forget: false,
  };
}
