import type { ContainerStatus } from '@cloudless/runtime';
import { definedFields, backoffDelayMs, type ContainerId } from '@cloudless/base';
import type { StoredProgress, StoredReplica } from '../store/agent-store.js';
import { fromContainerLabels } from '../container/container-labels.js';
import { adoptRunning, hasFailed, KEPT_CONTAINERS, reduceReplica } from './reduce-replica.js';
import type { ReplicaTarget } from './replica-target.js';
import { RESTART_BACKOFF } from './restart-decision.js';
import { isEnded } from './replica-phase.js';
import {
  createReplicaState,
  toCurrentContainer,
  type Activity,
  type ContainerExit,
  type ReplicaTransition,
  type ReplicaEffect,
  type ReplicaState,
  type StopDelays,
} from './replica-state.js';

/** Reasons of a replica whose containers, or processes, are not known yet. */
const REASON_UNLISTED = 'waiting for the container runtime of the node, which does not answer';
const REASON_PROCESS_UNLISTED =
  'waiting for the supervisor of processes of the node, which does not answer';

/** Data about a replica at the start of an agent. */
export interface RestoreInput {
  readonly stored: StoredReplica;
  /** Read from the stored start order. */
  readonly target?: ReplicaTarget;
  /** Read from the stored stop or forget order; of a replica marked as stopped, of its spec. */
  readonly stop?: StopDelays;
  readonly forget: boolean;
  /** Containers of this replica that the runtime lists, in any order. */
  readonly containers: readonly ContainerStatus[];
  readonly bootId: string;
  /** Last output lines of the container that {@link findUnseenFailure} returns. */
  readonly lastLines?: readonly string[];
}

/**
 * Returns the container of a replica that failed while no agent was running; undefined when no
 * container failed. Callers read the last lines of this container before {@link restoreReplica}.
 */
export function findUnseenFailure({
  stored,
  containers,
}: Pick<RestoreInput, 'stored' | 'containers'>): ContainerId | undefined {
  const oldestFirst = sortByStart(containers);
  const isStopping = stored.end !== undefined || stored.stopped === true;
  if (isStopping || oldestFirst.some(({ phase }) => phase === 'running')) return undefined;
  const exit = findUnhandledExit(stored, oldestFirst.at(-1));
  if (exit === undefined || exit.gone === true) return undefined;
  return hasFailed({ activity: toPreviousActivity(stored, exit.containerId) }, exit)
    ? exit.containerId
    : undefined;
}

/**
 * Returns the state of a replica after a restart of the agent. A running container is adopted. An
 * exit that no agent has handled is handled now. A replica without a container is started, unless
 * the machine was rebooted since the order was stored: then a coordinator must repeat the order
 * first.
 */
export function restoreReplica(input: RestoreInput): ReplicaTransition {
  const { stored, target, stop, forget } = input;
  const { progress } = stored;
  const oldestFirst = sortByStart(input.containers);
  const running = oldestFirst.filter(({ phase }) => phase === 'running').at(-1);
  const base: ReplicaState = {
    ...createReplicaState(stored.replicaId, stored.workloadUid),
    heldRevision: stored.heldRevision,
    ...definedFields({ target }),
    phase: progress.phase,
    reason: progress.reason,
    ...readRestarts(progress, running ?? oldestFirst.at(-1)),
    failures: progress.failures,
    ...definedFields({
      lastExitCode: progress.lastExitCode,
      lastEndReason: progress.lastEndReason,
    }),
    lastLines: progress.lastLines ?? [],
    ...toContainerField(running ?? oldestFirst.at(-1)),
    ...(stop === undefined
      ? {}
      : { stop, phase: isEnded(progress.phase) ? progress.phase : ('stopping' as const) }),
    forget,
  };
  const cleaned = cleanUpContainers(base, oldestFirst, running);
  const next = resume(cleaned.state, input, running, oldestFirst.at(-1));
  return { state: next.state, effects: [...cleaned.effects, ...next.effects] };
}

/**
 * Returns the state of a replica whose containers the runtime cannot list yet. The replica is not
 * ready, because its endpoints are not known. A stored stop or forget order is carried out later.
 */
export function restoreUnlisted({
  stored,
  target,
  stop,
  forget,
  bootId,
}: Omit<RestoreInput, 'containers'>): ReplicaState {
  const { progress } = stored;
  const isFinal = isEnded(progress.phase);
  const reason = target?.usesImage === false ? REASON_PROCESS_UNLISTED : REASON_UNLISTED;
  return {
    ...createReplicaState(stored.replicaId, stored.workloadUid),
    heldRevision: stored.heldRevision,
    ...definedFields({ target, stop }),
    phase: stop === undefined || isFinal ? progress.phase : 'stopping',
    reason: isFinal ? progress.reason : reason,
    restarts: progress.restarts,
    failedStarts: progress.failedStarts ?? 0,
    failures: progress.failures,
    ...definedFields({
      lastExitCode: progress.lastExitCode,
      lastEndReason: progress.lastEndReason,
    }),
    lastLines: progress.lastLines ?? [],
    activity: { kind: 'unlisted', progress, confirmed: stored.bootId === bootId },
    forget,
  };
}

/**
 * Returns the state of a replica for which the agent has containers but no orders. The replica is
 * reported with the data of the container labels, and a running container keeps running.
 */
export function restoreOrphan(
  replicaId: string,
  containers: readonly ContainerStatus[],
): ReplicaTransition {
  const oldestFirst = sortByStart(containers);
  const running = oldestFirst.filter(({ phase }) => phase === 'running').at(-1);
  const newest = running ?? oldestFirst.at(-1);
  const owner = newest === undefined ? undefined : fromContainerLabels(newest.labels);
  const base: ReplicaState = {
    ...createReplicaState(replicaId, owner?.workloadUid ?? ''),
    heldRevision: owner?.orderRevision ?? 0n,
    phase: 'running',
    reason: 'this agent has no order for the replica',
    restarts: owner?.restarts ?? 0,
    failedStarts: owner?.failedStarts ?? 0,
    ...toContainerField(newest),
  };
  const cleaned = cleanUpContainers(base, oldestFirst, running);
  if (running !== undefined) {
    const activity = { kind: 'running', containerId: running.containerId } as const;
    return { ...cleaned, state: { ...cleaned.state, activity, ready: true } };
  }
  const endedState: ReplicaState = {
    ...cleaned.state,
    phase: 'failed',
    activity: { kind: 'ended' },
    reason: `${newest?.reason ?? 'ended'}; not restarted: this agent has no order for the replica`,
    ...definedFields({ lastExitCode: newest?.exitCode }),
  };
  return { state: endedState, effects: cleaned.effects };
}

/**
 * Converts the status of an exited container.
 * @param upMs - Running time, milliseconds.
 */
export function toContainerExit(status: ContainerStatus, upMs: number): ContainerExit {
  const { containerId, exitCode = -1, reason = 'ended', leaseEnded } = status;
  return {
    containerId,
    exitCode,
    reason,
    upMs,
    ...definedFields({ leaseEnded }),
  };
}

/** Creates the exit of a container that should run and that the runtime does not list. */
export function createLostExit(containerId: ContainerExit['containerId']): ContainerExit {
  return {
    containerId,
    exitCode: -1,
    reason: 'the runtime no longer has the container',
    upMs: 0,
    gone: true,
  };
}

/**
 * Stops all running containers but the newest, and removes exited containers beyond {@link
 * KEPT_CONTAINERS}.
 */
function cleanUpContainers(
  state: ReplicaState,
  oldestFirst: readonly ContainerStatus[],
  running: ContainerStatus | undefined,
): ReplicaTransition {
  const others = oldestFirst.filter(
    ({ phase, containerId }) => phase === 'running' && containerId !== running?.containerId,
  );
  const ended = oldestFirst
    .filter(({ phase }) => phase === 'exited')
    .map(({ containerId }) => containerId);
  const removed = ended.slice(0, Math.max(0, ended.length - KEPT_CONTAINERS));
  return {
    state: { ...state, ended: ended.slice(removed.length) },
    effects: [
      ...others.map(({ containerId }): ReplicaEffect => ({
        kind: 'terminate',
        containerId,
        graceMs: 0,
      })),
      ...removed.map((containerId): ReplicaEffect => ({ kind: 'remove', containerId })),
    ],
  };
}

/**
 * Decides how the replica continues: adopts its running container, handles an exit, ends an ordered
 * stop, waits for a repeated order after a reboot, or starts a container.
 * @param newest - Container that was started last, running or exited.
 */
function resume(
  state: ReplicaState,
  { stored, bootId, lastLines }: RestoreInput,
  running: ContainerStatus | undefined,
  newest: ContainerStatus | undefined,
): ReplicaTransition {
  if (isEnded(state.phase)) return resumeEnded(state, running);
  if (running !== undefined) return adopt(state, stored, running);
  const end = findUnhandledExit(stored, newest);
  const exit = end === undefined || lastLines === undefined ? end : { ...end, lastLines };
  if (state.stop !== undefined) {
    const reason = exit?.reason ?? state.reason;
    const lastExitCode =
      exit === undefined || exit.gone === true ? state.lastExitCode : exit.exitCode;
    const endedState: ReplicaState = {
      ...state,
      phase: 'stopped',
      activity: { kind: 'ended' },
      reason,
      ...definedFields({ lastExitCode }),
      ...(exit === undefined ? {} : { lastEndReason: exit.reason }),
    };
    return { state: endedState, effects: state.forget ? [{ kind: 'forget' }] : [] };
  }
  if (stored.bootId !== bootId) {
    const activity = { kind: 'unconfirmed', ...definedFields({ exit }) } as const;
    return {
      state: {
        ...state,
        activity,
        reason: 'the machine was rebooted; waiting for the coordinator to repeat the order',
      },
      effects: [],
    };
  }
  if (exit !== undefined) {
    return reduceReplica(
      { ...state, activity: toPreviousActivity(stored, exit.containerId) },
      { kind: 'exited', exit },
    );
  }
  const delayMs = backoffDelayMs(RESTART_BACKOFF, state.failures);
  return {
    state: { ...state, activity: { kind: 'backingOff' } },
    effects: [{ kind: 'startAfter', delayMs, isBackoff: state.failures > 0 }],
  };
}

/** Returns the activity of the previous agent for a container that has exited since. */
function toPreviousActivity(
  { progress }: StoredReplica,
  containerId: ContainerExit['containerId'],
): Activity {
  const { killing } = progress;
  if (killing === undefined || progress.containerId !== containerId)
    return { kind: 'running', containerId };
  return { kind: 'killing', containerId, reason: killing };
}

/**
 * Restores a replica that had a final phase when it was stored. Stops a container that runs
 * nevertheless.
 */
function resumeEnded(state: ReplicaState, running: ContainerStatus | undefined): ReplicaTransition {
  const effects: ReplicaEffect[] = state.forget ? [{ kind: 'forget' }] : [];
  if (running !== undefined)
    effects.unshift({ kind: 'terminate', containerId: running.containerId, graceMs: 0 });
  return { state: { ...state, activity: { kind: 'ended' } }, effects };
}

/** Adopts the running container; continues a stop or kill of the previous agent. */
function adopt(
  state: ReplicaState,
  { progress }: StoredReplica,
  running: ContainerStatus,
): ReplicaTransition {
  const { containerId } = running;
  const starting: ReplicaState = { ...state, activity: { kind: 'starting', containerId } };
  const adopted = reduceReplica(starting, { kind: 'started', status: running });
  if (state.stop !== undefined) return adopted; // continues the stop of the previous agent
  const { killing, ready } = progress;
  const { container } = adopted.state;
  if (
    container === undefined ||
    progress.containerId !== containerId ||
    (!ready && killing === undefined)
  )
    return adopted;
  return adoptRunning(
    adopted.state,
    container,
    killing === undefined ? { ready } : { ready, killing },
  );
}

/**
 * Returns the exit of the newest container; undefined when a previous agent has handled the exit.
 */
function findUnhandledExit(
  { progress }: StoredReplica,
  newest: ContainerStatus | undefined,
): ContainerExit | undefined {
  if (newest !== undefined) {
    if (newest.containerId === progress.containerId && progress.containerEnded) return undefined;
    return toContainerExit(
      newest,
      Math.max(0, (newest.finishedAtMs ?? newest.startedAtMs) - newest.startedAtMs),
    );
  }
  if (progress.containerId === undefined || progress.containerEnded) return undefined;
  return createLostExit(progress.containerId as ContainerExit['containerId']);
}

function toContainerField(
  status: ContainerStatus | undefined,
): Pick<ReplicaState, 'container'> | Record<string, never> {
  if (status === undefined) return {};
  return { container: toCurrentContainer(status) };
}

/**
 * Reads the restarts and failed starts from the stored progress and the container labels. The
 * labels have the current counts even when the last progress could not be stored.
 */
function readRestarts(
  progress: StoredProgress,
  newest: ContainerStatus | undefined,
): Pick<ReplicaState, 'restarts' | 'failedStarts'> {
  const owner = newest === undefined ? undefined : fromContainerLabels(newest.labels);
  return {
    restarts: Math.max(progress.restarts, owner?.restarts ?? 0),
    failedStarts: Math.max(progress.failedStarts ?? 0, owner?.failedStarts ?? 0),
  };
}

function sortByStart(containers: readonly ContainerStatus[]): readonly ContainerStatus[] {
  return [...containers].sort(
    (a, b) =>
      a.startedAtMs - b.startedAtMs || (a.finishedAtMs ?? Infinity) - (b.finishedAtMs ?? Infinity),
  );
}
