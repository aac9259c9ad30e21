import { assertNever, type ContainerId } from '@cloudless/base';
import type { ReplicaTarget } from './replica-target.js';
import { withFilesReason } from './files-reason.js';
import { withPull } from './pull-reason.js';
import {
  mayGiveUpStart,
  withStartRefused,
  withStoredEnd,
  withUnstoredEnd,
} from './order-storage.js';
import {
  countRestart,
  decideRestart,
  formatDelay,
  isFailure,
  toLastEnd,
  type ContainerEnding,
} from './restart-decision.js';
import { isEnded, type ReplicaPhase } from './replica-phase.js';
import {
  toCurrentContainer,
  type ContainerExit,
  type CurrentContainer,
  type ReplicaTransition,
  type ReplicaEffect,
  type ReplicaEvent,
  type ReplicaState,
  type StopDelays,
} from './replica-state.js';
import { resolveStopDelays, toLeaveMs } from './stop-delays.js';

/** Exited containers that a replica keeps, so that users can read their logs. */
export const KEPT_CONTAINERS = 2;
/** Reason of an exclusive replica that is not started for lack of contact. */
const REASON_OUT_OF_CONTACT =
  'exclusive: without contact with a coordinator for too long; starts when a coordinator repeats the order';
/**
 * Reason of a replica whose main process is gone while the runtime still reports the container as
 * running.
 */
const REASON_PROCESS_GONE =
  'the main process no longer exists, and the container runtime has not reported its exit';
/** Reason of a replica whose start was given up; the coordinator creates another replica. */
const REASON_RUNTIME_SILENT = 'not started: the container runtime of the node does not answer';
const REASON_SUPERVISOR_SILENT = 'not started: the supervisor of processes does not answer';
/** Reason of a replica that waits in the start queue. */
const REASON_QUEUED = 'waits in the start queue of this node';
/** Delay before the next call to a runtime that did not answer, milliseconds. */
export const RUNTIME_RETRY_MS = 500;

/**
 * Applies one event to the state of a replica and returns the new state with the effects to carry
 * out. Pure. Duplicated and late events are harmless: an event of another container than the
 * current container changes nothing. The caller has already refused orders with an older revision.
 */
export function reduceReplica(state: ReplicaState, event: ReplicaEvent): ReplicaTransition {
  switch (event.kind) {
    case 'startOrdered':
      return onStartOrdered(
        { ...state, heldRevision: event.revision, target: event.target },
        event.newContainerId,
        state.target,
      );
    case 'stopOrdered':
      return onStopOrdered(
        { ...state, heldRevision: event.revision },
        resolveStopDelays(state.target, event.delays),
        event.reason,
      );
    case 'forgetOrdered':
      return onForgetOrdered({ ...state, heldRevision: event.revision, forget: true });
    case 'startNotStored':
      return withoutEffects(withStartRefused(state, event.reason));
    case 'startGivenUp':
      return mayGiveUpStart(state)
        ? finish(state, 'stopped', `not started: ${event.reason}`)
        : withoutEffects(state);
    case 'endNotStored':
      return withoutEffects(withUnstoredEnd(state, event.unstored));
    case 'endStored':
      return withoutEffects(withStoredEnd(state));
    case 'startDue':
      return onStartDue(state, event.newContainerId);
    case 'startQueued':
      if (state.activity.kind !== 'starting' || state.activity.containerId !== event.containerId)
        return withoutEffects(state);
      // The reason of a restart says more than the position in the queue.
      return withoutEffects(state.reason === '' ? { ...state, reason: REASON_QUEUED } : state);
    case 'pullChanged':
      return withoutEffects(withPull(state, event));
    case 'started':
      return onStarted(state, event);
    case 'startFailed':
      return onStartFailed(state, event);
    case 'exited':
      return onExited(state, event.exit);
    case 'outOfContact':
      return onOutOfContact(state, event.containerId);
    case 'processGone':
      if (state.activity.kind !== 'running' || state.activity.containerId !== event.containerId)
        return withoutEffects(state);
      return state.reason === REASON_PROCESS_GONE
        ? withoutEffects(state)
        : withoutEffects({ ...state, ready: false, reason: REASON_PROCESS_GONE });
    case 'runtimeAway':
      return onRuntimeAway(state, event.uncertain);
    case 'accepted':
      if (state.activity.kind !== 'running' || state.activity.containerId !== event.containerId)
        return withoutEffects(state);
      return withoutEffects({ ...state, ready: true, reason: '' });
    case 'startedUp':
    case 'probed':
    case 'unhealthy':
      if (state.activity.kind !== 'running' || state.activity.containerId !== event.containerId)
        return withoutEffects(state);
      return onProbe(state, event);
    case 'filesReported':
      return withoutEffects(withFilesReason(state, event.reason));
    case 'endpointsGone':
      return onEndpointsGone(state);
    case 'stopDue':
      return state.activity.kind === 'leaving'
        ? terminate(state, state.activity.containerId)
        : withoutEffects(state);
    default:
      return assertNever(event);
  }
}

function onStartOrdered(
  state: ReplicaState,
  newContainerId: ContainerId,
  previousTarget: ReplicaTarget | undefined,
): ReplicaTransition {
  // An ended or stopping replica is never started again.
  if (state.stop !== undefined || isEnded(state.phase)) return withoutEffects(state);
  if (state.activity.kind === 'none') return start({ ...state, reason: '' }, newContainerId);
  if (
    state.activity.kind === 'running' &&
    previousTarget === undefined &&
    state.container !== undefined
  ) {
    // A container adopted without an order: its probes are known only now.
    return { state, effects: createProbeEffects(state.target, state.container, state.ready) };
  }
  if (state.activity.kind === 'unlisted')
    return withoutEffects({ ...state, activity: { ...state.activity, confirmed: true } });
  if (state.activity.kind !== 'unconfirmed') return withoutEffects(state);
  const { exit } = state.activity;
  const confirmed: ReplicaState = { ...state, reason: '' };
  return exit === undefined
    ? start(confirmed, newContainerId)
    : handleEnd(confirmed, { kind: 'exited', ...exit });
}

function onStopOrdered(state: ReplicaState, delays: StopDelays, reason: string): ReplicaTransition {
  if (isEnded(state.phase))
    return state.forget ? { state, effects: [{ kind: 'forget' }] } : withoutEffects(state);
  const { activity, stop: earlierStop } = state;
  const stopping: ReplicaState = {
    ...state,
    phase: 'stopping',
    ready: false,
    stop: delays,
    reason,
  };
  switch (activity.kind) {
    case 'none':
    case 'unconfirmed':
    case 'ended':
      return finish(stopping, 'stopped', reason);
    case 'backingOff':
      return activity.containerId === undefined
        ? finish(stopping, 'stopped', reason)
        : terminate(stopping, activity.containerId);
    case 'starting': // waits for the result of the start
    case 'unlisted': // waits for the runtime's list of containers
      return withoutEffects(stopping);
    case 'killing': // the replica is not an endpoint any more: no pre-stop delay
      return terminate(stopping, activity.containerId);
    case 'running':
      return leave(stopping, activity.containerId, delays);
    case 'leaving': // a newer stop order may shorten the delay
      if (earlierStop !== undefined && toLeaveMs(delays) >= toLeaveMs(earlierStop)) {
        const { endpointsGoneMs, preStopMs } = earlierStop;
        return withoutEffects({ ...stopping, stop: { ...delays, endpointsGoneMs, preStopMs } });
      }
      return leave(stopping, activity.containerId, delays);
    case 'terminating':
      if (earlierStop !== undefined && delays.graceMs >= earlierStop.graceMs)
        return withoutEffects(stopping);
      return terminate(stopping, activity.containerId);
    default:
      return assertNever(activity);
  }
}

/** Stops a container after its delays, which begin now; at once without delays. */
function leave(
  state: ReplicaState,
  containerId: ContainerId,
  delays: StopDelays,
): ReplicaTransition {
  const delayMs = toLeaveMs(delays);
  if (delayMs <= 0) return terminate(state, containerId);
  return {
    state: { ...state, activity: { kind: 'leaving', containerId } },
    effects: [{ kind: 'terminateAfter', delayMs }],
  };
}

/** Ends the wait for network proxies; the pre-stop delay begins now. */
function onEndpointsGone(state: ReplicaState): ReplicaTransition {
  const { activity, stop } = state;
  if (activity.kind !== 'leaving' || stop === undefined || stop.endpointsGoneMs <= 0)
    return withoutEffects(state);
  const delays = { ...stop, endpointsGoneMs: 0 };
  return leave({ ...state, stop: delays }, activity.containerId, delays);
}

/**
 * Stops a running container before the replica is forgotten: by the stop in progress, or else with
 * the delays of the replica's own spec.
 */
function onForgetOrdered(state: ReplicaState): ReplicaTransition {
  if (isEnded(state.phase)) return { state, effects: [{ kind: 'forget' }] };
  return state.stop !== undefined
    ? withoutEffects(state)
    : onStopOrdered(state, resolveStopDelays(state.target, {}), 'forgotten by the coordinator');
}

function onStartDue(state: ReplicaState, newContainerId: ContainerId): ReplicaTransition {
  if (state.activity.kind !== 'backingOff' || state.stop !== undefined)
    return withoutEffects(state);
  return start(state, state.activity.containerId ?? newContainerId);
}

function onStarted(
  state: ReplicaState,
  { status }: Extract<ReplicaEvent, { kind: 'started' }>,
): ReplicaTransition {
  const { activity } = state;
  const isAwaited =
    (activity.kind === 'starting' || activity.kind === 'backingOff') &&
    activity.containerId === status.containerId;
  if (!isAwaited) return withoutEffects(state);
  const container = toCurrentContainer(status);
  if (state.stop !== undefined) return terminate({ ...state, container }, container.id);
  const running: ReplicaState = {
    ...state,
    phase: 'running',
    activity: { kind: 'running', containerId: container.id },
    container,
  };
  const hasStartupProbe = state.target?.probes.startup !== undefined;
  const next = hasStartupProbe
    ? withoutEffects({ ...running, ready: false, reason: 'waiting for the startup probe' })
    : awaitReadiness(running, container);
  return {
    state: next.state,
    effects: [...next.effects, ...createProbeEffects(state.target, container, false)],
  };
}

/**
 * Decides how a container becomes ready: by its readiness probe, or else when its TCP ports accept
 * connections, or else at once.
 */
function awaitReadiness(state: ReplicaState, container: CurrentContainer): ReplicaTransition {
  if (state.target?.probes.readiness !== undefined) {
    return withoutEffects({ ...state, ready: false, reason: 'waiting for the readiness probe' });
  }
  const ports = state.target?.tcpPorts ?? [];
  const pendingPorts = container.endpoints
    .filter(({ portName }) => ports.includes(portName))
    .map(({ portName }) => portName);
  if (pendingPorts.length === 0) return withoutEffects({ ...state, ready: true, reason: '' });
  const reason = `waiting for ${pendingPorts.length === 1 ? 'port' : 'ports'} ${pendingPorts.join(', ')} to accept connections`;
  return {
    state: { ...state, ready: false, reason },
    effects: [{ kind: 'awaitReady', container, ports: pendingPorts }],
  };
}

/** Returns the effect that probes a container; an empty list when the target has no probes. */
function createProbeEffects(
  target: ReplicaTarget | undefined,
  container: CurrentContainer,
  wasReady: boolean,
): readonly ReplicaEffect[] {
  return Object.keys(target?.probes ?? {}).length === 0
    ? []
    : [{ kind: 'probe', container, wasReady }];
}

type ProbeEvent = Extract<ReplicaEvent, { kind: 'startedUp' | 'probed' | 'unhealthy' }>;

/** Handles a result of the probes of the running container. */
function onProbe(state: ReplicaState, event: ProbeEvent): ReplicaTransition {
  switch (event.kind) {
    case 'startedUp':
      return state.container === undefined
        ? withoutEffects(state)
        : awaitReadiness(state, state.container);
    case 'probed':
      if (state.ready === event.ready && state.reason === event.reason)
        return withoutEffects(state);
      return withoutEffects({ ...state, ready: event.ready, reason: event.reason });
    case 'unhealthy':
      return kill(state, event.containerId, event.reason);
  }
}

/**
 * Stops an unhealthy container. The restart policy then restarts the replica, so its phase stays.
 */
function kill(state: ReplicaState, containerId: ContainerId, reason: string): ReplicaTransition {
  const killing: ReplicaState = {
    ...state,
    activity: { kind: 'killing', containerId, reason },
    ready: false,
    reason,
  };
  return {
    state: killing,
    effects: [
      { kind: 'terminate', containerId, graceMs: resolveStopDelays(state.target, {}).graceMs },
    ],
  };
}

/**
 * Adopts the running container of a previous agent. A container that was ready stays ready until
 * its readiness probe reaches the failure threshold. A container that the previous agent was
 * killing is killed.
 * @param previous - `killing` is the reason why the previous agent was killing the container.
 */
export function adoptRunning(
  state: ReplicaState,
  container: CurrentContainer,
  previous: { readonly ready: boolean; readonly killing?: string },
): ReplicaTransition {
  const running: ReplicaState = {
    ...state,
    activity: { kind: 'running', containerId: container.id },
    container,
  };
  if (previous.killing !== undefined) return kill(running, container.id, previous.killing);
  return {
    state: { ...running, ready: true, reason: '' },
    effects: createProbeEffects(state.target, container, true),
  };
}

function onStartFailed(
  before: ReplicaState,
  event: Extract<ReplicaEvent, { kind: 'startFailed' }>,
): ReplicaTransition {
  const { activity, stop } = before;
  const { uncertain, unreachable = uncertain, containerId } = event;
  if (activity.kind !== 'starting' || activity.containerId !== containerId)
    return withoutEffects(before);
  const state = event.pull === undefined ? before : { ...before, imagePull: event.pull };
  if (stop !== undefined)
    return uncertain ? terminate(state, containerId) : finish(state, 'stopped', state.reason);
  if (unreachable) {
    const reason = `${event.reason}, trying again in ${formatDelay(RUNTIME_RETRY_MS)}`;
    return {
      state: {
        ...state,
        activity: { kind: 'backingOff', ...(uncertain ? { containerId } : {}) },
        reason,
      },
      effects: [{ kind: 'startAfter', delayMs: RUNTIME_RETRY_MS, isBackoff: false }],
    };
  }
  const { reason, lastLines = [] } = event;
  const failed = handleEnd(state, { kind: 'notStarted', reason, lastLines });
  return uncertain ? keepUncertainContainer(failed, containerId) : failed;
}

/**
 * Keeps track of a container that an earlier attempt may have started: the next attempt uses the
 * same id, or else the container is stopped.
 */
function keepUncertainContainer(
  { state, effects }: ReplicaTransition,
  containerId: ContainerId,
): ReplicaTransition {
  if (state.activity.kind === 'backingOff')
    return { state: { ...state, activity: { kind: 'backingOff', containerId } }, effects };
  return { state, effects: [{ kind: 'terminate', containerId, graceMs: 0 }, ...effects] };
}

/**
 * True when an exit is a failure whose last lines are reported: the exit was not ordered, and its
 * exit code is not 0 or a probe caused it.
 */
export function hasFailed(
  { activity, stop }: Pick<ReplicaState, 'activity' | 'stop'>,
  exit: ContainerExit,
): boolean {
  if (stop !== undefined || exit.leaseEnded === true) return false;
  if (!('containerId' in activity) || activity.containerId !== exit.containerId) return false;
  return exit.exitCode !== 0 || activity.kind === 'killing';
}

function onExited(state: ReplicaState, exit: ContainerExit): ReplicaTransition {
  const { activity } = state;
  if (!('containerId' in activity) || activity.containerId !== exit.containerId)
    return withoutEffects(state);
  if (exit.leaseEnded === true && state.stop === undefined) return onLeaseEnded(state, exit);
  if (activity.kind !== 'killing') return handleEnd(state, { kind: 'exited', ...exit });
  return handleEnd(state, {
    kind: 'exited',
    ...exit,
    reason: `${activity.reason} (${exit.reason})`,
    unhealthy: true,
  });
}

/**
 * Handles the exit of a container whose lease has ended. The coordinator may have replaced the
 * replica meanwhile, so only a repeated order starts the replica again.
 */
function onLeaseEnded(state: ReplicaState, exit: ContainerExit): ReplicaTransition {
  const kept = keepEnded(state, exit.containerId);
  const waiting: ReplicaState = {
    ...kept.state,
    phase: toLaterPhase(state.phase, 'running'),
    activity: { kind: 'unconfirmed' },
    ready: false,
    lastExitCode: exit.exitCode,
    lastEndReason: exit.reason,
    restarts: state.restarts + 1,
    reason: REASON_OUT_OF_CONTACT,
  };
  return { state: waiting, effects: kept.effects };
}

function onOutOfContact(state: ReplicaState, containerId: ContainerId): ReplicaTransition {
  const { activity, stop } = state;
  if (activity.kind !== 'starting' || activity.containerId !== containerId)
    return withoutEffects(state);
  if (stop !== undefined) return finish(state, 'stopped', state.reason);
  return withoutEffects({
    ...state,
    activity: { kind: 'unconfirmed' },
    reason: REASON_OUT_OF_CONTACT,
  });
}

/**
 * Gives up a start, so that the coordinator creates another replica. The replica ends as stopped,
 * not as failed, because the workload did not cause the failure. A container that may have been
 * started is removed as soon as the runtime answers. Under restart policy `never` a start with
 * unknown outcome is not given up, because the work must not run twice.
 * @param uncertain - True when the container may have been started.
 */
function onRuntimeAway(state: ReplicaState, uncertain: boolean): ReplicaTransition {
  const { activity, stop, target } = state;
  if (stop !== undefined || (activity.kind !== 'starting' && activity.kind !== 'backingOff'))
    return withoutEffects(state);
  if (uncertain && target?.restart === 'never') return withoutEffects(state);
  const reason = target?.usesImage === false ? REASON_SUPERVISOR_SILENT : REASON_RUNTIME_SILENT;
  const ended = finish(state, 'stopped', reason);
  if (!uncertain || activity.containerId === undefined) return ended;
  return {
    state: ended.state,
    effects: [{ kind: 'discard', containerId: activity.containerId }, ...ended.effects],
  };
}

/**
 * Handles the end of a container or a failed start: finishes an ordered stop, or else applies the
 * restart policy.
 */
function handleEnd(
  state: ReplicaState,
  ending: ContainerEnding & Partial<Pick<ContainerExit, 'containerId' | 'gone' | 'lastLines'>>,
): ReplicaTransition {
  const hasExited = ending.kind === 'exited' && ending.gone !== true;
  const kept =
    hasExited && ending.containerId !== undefined
      ? keepEnded(state, ending.containerId)
      : withoutEffects(state);
  const after: ReplicaState = {
    ...kept.state,
    ready: false,
    ...(hasExited
      ? { lastExitCode: ending.exitCode, phase: toLaterPhase(state.phase, 'running') }
      : {}),
    ...toLastEnd(state, ending),
    ...(state.stop === undefined && isFailure(ending) ? { lastLines: ending.lastLines ?? [] } : {}),
  };
  const next = decideAfterEnd(after, ending);
  return { state: next.state, effects: [...kept.effects, ...next.effects] };
}

/** Finishes the replica or restarts it after a delay, by the restart policy. */
function decideAfterEnd(state: ReplicaState, ending: ContainerEnding): ReplicaTransition {
  if (state.stop !== undefined) return finish(state, 'stopped', ending.reason);
  if (state.target === undefined)
    return finish(
      state,
      'failed',
      `${ending.reason}; not restarted: this agent has no order for the replica`,
    );
  const decision = decideRestart(state.target, ending, state.failures);
  if (decision.kind !== 'restart') return finish(state, decision.kind, decision.reason);
  const { delayMs, failures, reason } = decision;
  return {
    state: {
      ...state,
      activity: { kind: 'backingOff' },
      ...countRestart(state, ending),
      failures,
      reason,
    },
    effects: [{ kind: 'startAfter', delayMs, isBackoff: true }],
  };
}

/**
 * Adds a container to the list of exited containers and removes the oldest containers beyond
 * {@link KEPT_CONTAINERS}.
 */
function keepEnded(state: ReplicaState, containerId: ContainerId): ReplicaTransition {
  const all = [...state.ended.filter((id) => id !== containerId), containerId];
  const removed = all.slice(0, Math.max(0, all.length - KEPT_CONTAINERS));
  return {
    state: { ...state, ended: all.slice(removed.length) },
    effects: removed.map((id): ReplicaEffect => ({ kind: 'remove', containerId: id })),
  };
}

function start(state: ReplicaState, containerId: ContainerId): ReplicaTransition {
  return {
    state: { ...state, activity: { kind: 'starting', containerId } },
    effects: [{ kind: 'start', containerId }],
  };
}

/** Stops the container with the grace period of the stop order, or else of the spec. */
function terminate(state: ReplicaState, containerId: ContainerId): ReplicaTransition {
  const { graceMs } = state.stop ?? resolveStopDelays(state.target, {});
  const stopping: ReplicaState = {
    ...state,
    phase: toLaterPhase(state.phase, 'stopping'),
    ready: false,
  };
  return {
    state: { ...stopping, activity: { kind: 'terminating', containerId } },
    effects: [{ kind: 'terminate', containerId, graceMs }],
  };
}

/** Ends the replica in a final phase, and forgets the replica when a forget order was stored. */
function finish(state: ReplicaState, phase: ReplicaPhase, reason: string): ReplicaTransition {
  const ended: ReplicaState = {
    ...state,
    phase,
    activity: { kind: 'ended' },
    ready: false,
    reason,
  };
  return { state: ended, effects: state.forget ? [{ kind: 'forget' }] : [] };
}

/** Returns the later one of two phases; a phase after `other` stays. */
function toLaterPhase(phase: ReplicaPhase, other: 'running' | 'stopping'): ReplicaPhase {
  return phase === 'starting' || (phase === 'running' && other === 'stopping') ? other : phase;
}

function withoutEffects(state: ReplicaState): ReplicaTransition {
  return { state, effects: [] };
}
