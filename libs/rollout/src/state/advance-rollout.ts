import { definedFields } from '@cloudless/base';
import { decideNextSteps, type RolloutDecision } from '../steps/next-steps.js';
import type { RolloutObserved, RolloutReplica, RolloutStrategy } from '../steps/observed.js';
import { countWhere } from '../steps/replica-tally.js';
import {
  NO_ROLLOUT,
  isFirstRollout,
  isSettled,
  countAvailable,
  formatDuration,
  omitTimes,
} from './rollout-state.js';
import type {
  RolloutAdvance,
  RolloutEvent,
  RolloutSituation,
  RolloutState,
} from './rollout-state.js';
import {
  hasOpenCanaryStep,
  observeGate,
  passCanarySteps,
  explainStepWait,
} from './canary-steps.js';
import {
  GATE_INTERVAL_MS,
  explainGateFailure,
  findGateTime,
  getGateDeadline,
} from './step-gate.js';

/**
 * Advances a rollout by one decision: starts the rollout of a new version, passes canary steps,
 * detects a failure, and lets the planner decide the next steps. Pure: the caller stores the state
 * and applies the steps in one transaction, so that a crash between two decisions loses nothing.
 * @param before - The state that the last decision returned; `NO_ROLLOUT` before the first.
 */
export function advanceRollout(before: RolloutState, situation: RolloutSituation): RolloutAdvance {
  const events: RolloutEvent[] = [];
  let state = startIfNewVersion(limitTimesToNow(before, situation.nowMs), situation, events);
  state = applyRetry(followStrategyChange(state, situation), situation, events);
  state = recordProgress(endWaitForPinnedNodes(state, situation), situation);
  state = observeGate(state, situation);
  const failure = detectFailure(state, situation);
  if (failure !== undefined) {
    state = {
      ...omitTimes(state, 'waitsUntilMs', 'gate'),
      phase: 'failed',
      reason: failure,
      waitsForPromotion: false,
    };
    events.push({ kind: 'failed', message: `version ${state.version} failed: ${failure}` });
    if (shouldRollBack(state, situation)) {
      state = { ...state, rollsBackFrom: state.version };
      const observed = toObserved(state, situation, undefined);
      return {
        state,
        observed,
        decision: WAIT_FOR_ROLLBACK,
        rollBackTo: state.fromVersion,
        events,
      };
    }
  }
  const steps = passCanarySteps(state, situation, events);
  state = steps.state;
  const observed = toObserved(state, situation, steps.updated);
  const decision = decideNextSteps(observed);
  if (decision.kind === 'steps' && decision.steps.some(({ kind }) => kind === 'switchVersion')) {
    state = recordSwitch(state, situation, events);
  }
  state = concludeDecision(state, situation, decision, {
    events,
    wasWaiting: before.waitsForPromotion,
  });
  const wakeAtMs = computeWakeTime(state, situation);
  return { state, observed, decision, events, ...definedFields({ wakeAtMs }) };
}

/** Limits stored times to the present, so that a clock that was set back prolongs no wait. */
function limitTimesToNow(state: RolloutState, nowMs: number): RolloutState {
  const { progressAtMs, stepReachedAtMs, switchedAtMs, gate } = state;
  return {
    ...state,
    progressAtMs: Math.min(progressAtMs, nowMs),
    ...(stepReachedAtMs === undefined ? {} : { stepReachedAtMs: Math.min(stepReachedAtMs, nowMs) }),
    ...(switchedAtMs === undefined ? {} : { switchedAtMs: Math.min(switchedAtMs, nowMs) }),
    ...(gate === undefined ? {} : { gate: { ...gate, sinceMs: Math.min(gate.sinceMs, nowMs) } }),
  };
}

/** The decision that starts a rollback: the caller writes the previous template, without steps. */
const WAIT_FOR_ROLLBACK: RolloutDecision = {
  kind: 'waiting',
  reason: { kind: 'paused', text: 'rolling back to the previous version' },
  wakeOn: { kind: 'spec' },
};

function startIfNewVersion(
  state: RolloutState,
  situation: RolloutSituation,
  events: RolloutEvent[],
): RolloutState {
  const { version, settings, nowMs, toCanonical } = situation;
  if (state.version === version) return state;
  const { activeVersion, strategy, rollsBackFrom, fromVersion, switchedAtMs } = state;
  events.push({
    kind: 'started',
    message:
      activeVersion === 0
        ? `version ${version} is the first version`
        : `version ${version} replaces version ${activeVersion}`,
  });
  return {
    ...NO_ROLLOUT,
    phase: 'inProgress',
    version,
    fromVersion: activeVersion,
    activeVersion,
    strategy: state.version === 0 || isSettled(state) ? settings.strategy : strategy,
    startedAtMs: nowMs,
    bestProgress: Number.MIN_SAFE_INTEGER,
    progressAtMs: nowMs,
    // No promotion is needed to return to the previous version while its replicas are kept.
    promoted:
      switchedAtMs !== undefined &&
      fromVersion !== 0 &&
      toCanonical(fromVersion) === toCanonical(version),
    // Stays set for the version that the rollback writes; any other new version ends the rollback,
    // also a version that a user writes before the rollback has begun.
    rollsBackFrom:
      rollsBackFrom === state.version && toCanonical(fromVersion) === toCanonical(version)
        ? rollsBackFrom
        : 0,
  };
}

/**
 * Applies a change of the strategy. A rollout changes to blue/green only while all live replicas
 * have the active version, as two versions cannot both be active. A rollout changes from blue/green
 * only when the set that does not serve is gone.
 */
function followStrategyChange(
  state: RolloutState,
  { settings, observed, toCanonical }: RolloutSituation,
): RolloutState {
  const { strategy } = settings;
  if (state.strategy === strategy) return state;
  const active = toCanonical(state.activeVersion === 0 ? state.version : state.activeVersion);
  const hasOthers = observed.replicas.some(
    (replica) => !replica.lost && replica.version !== active,
  );
  const mayFollow = hasOthers ? state.strategy !== 'blueGreen' && strategy !== 'blueGreen' : true;
  return mayFollow ? { ...omitTimes(state, 'switchedAtMs'), strategy } : state;
}

/** Applies a user's retry: the failures so far no longer count. */
function applyRetry(
  state: RolloutState,
  { failures, nowMs }: RolloutSituation,
  events: RolloutEvent[],
): RolloutState {
  if (!state.retry) return state;
  const next = { ...state, retry: false };
  if (isSettled(state)) return next;
  if (state.phase !== 'failed') return { ...next, forgivenFailures: failures };
  events.push({ kind: 'resumed', message: `version ${state.version} is retried` });
  return {
    ...next,
    phase: 'inProgress',
    reason: '',
    forgivenFailures: failures,
    progressAtMs: nowMs,
  };
}

/** Returns the reason why the rollout fails now; undefined when it does not. */
function detectFailure(state: RolloutState, situation: RolloutSituation): string | undefined {
  const { settings, failures, nowMs, pausedByUser } = situation;
  const gateFailure = explainGateFailure(state, situation);
  if (gateFailure !== undefined) return gateFailure;
  if (state.phase !== 'inProgress' || pausedByUser || isWaitingForPinnedNodes(state, situation))
    return undefined;
  const failureCount = failures - state.forgivenFailures;
  if (failureCount >= getMaxFailedNew(situation))
    return `new replicas failed ${failureCount === 1 ? 'once' : `${failureCount} times`}`;
  const deadlineMs = getProgressDeadline(state, situation);
  if (deadlineMs !== undefined && nowMs >= deadlineMs)
    return `no progress for ${formatDuration(settings.progressDeadlineMs)}${state.reason === '' ? '' : `: ${state.reason}`}`;
  return undefined;
}

/** Returns the number of failures of new replicas at which the rollout fails, at least 1. */
function getMaxFailedNew({ settings, observed }: RolloutSituation): number {
  const { maxFailedNew } = settings;
  const limit =
    typeof maxFailedNew === 'number'
      ? maxFailedNew
      : Math.ceil((maxFailedNew.percent * observed.want) / 100);
  return Math.max(1, limit);
}

/**
 * Returns the time at which the rollout fails because it makes no progress; undefined while the
 * rollout waits for something that is no fault of the new version.
 * @param state - In phase `inProgress`.
 */
function getProgressDeadline(state: RolloutState, situation: RolloutSituation): number | undefined {
  if (state.stepReachedAtMs !== undefined) return getGateDeadline(state, situation);
  if (isWaitingForStops(state, situation) || isWaitingForPinnedNodes(state, situation))
    return undefined;
  return state.progressAtMs + situation.settings.progressDeadlineMs;
}

/**
 * Returns true while RECREATE waits for stops of other versions, which end within their termination
 * grace.
 */
function isWaitingForStops(
  { strategy, version }: RolloutState,
  { observed, toCanonical }: RolloutSituation,
): boolean {
  const wanted = toCanonical(version);
  const isLeaving = (replica: RolloutReplica): boolean =>
    replica.version !== wanted && replica.desired === 'stopped';
  return (
    strategy === 'recreate' &&
    observed.replicas.some((replica) => !replica.lost && isLeaving(replica))
  );
}

/**
 * Returns true when only pinned nodes are left to update. Such a wait ends with a decision of a
 * user, so neither the deadline nor failures count until then.
 */
function isWaitingForPinnedNodes(
  { version }: RolloutState,
  { observed, toCanonical }: RolloutSituation,
): boolean {
  const wanted = toCanonical(version);
  return (
    (observed.pinnedNodes ?? []).length > 0 &&
    observed.replicas.every(
      (replica) =>
        replica.lost ||
        (replica.version === wanted && replica.desired === 'running' && replica.available),
    )
  );
}

/**
 * Restarts the deadline and forgives the failures during the wait when pinned nodes accept again.
 */
function endWaitForPinnedNodes(state: RolloutState, situation: RolloutSituation): RolloutState {
  const hasWaited =
    situation.observed.globalTargets !== undefined &&
    state.phase === 'inProgress' &&
    state.version === situation.version &&
    state.waitsUntilMs === undefined &&
    state.bestProgress > Number.MIN_SAFE_INTEGER;
  if (
    !hasWaited ||
    isWaitingForPinnedNodes(state, situation) ||
    isWaitingForStops(state, situation)
  )
    return state;
  return { ...state, progressAtMs: situation.nowMs, forgivenFailures: situation.failures };
}

function shouldRollBack(state: RolloutState, { settings, toCanonical }: RolloutSituation): boolean {
  if (settings.onFailure !== 'rollback' || isFirstRollout(state) || state.rollsBackFrom !== 0)
    return false;
  return toCanonical(state.fromVersion) !== toCanonical(state.version);
}

function toObserved(
  state: RolloutState,
  situation: RolloutSituation,
  updated: number | undefined,
): RolloutObserved {
  const { toCanonical, observed, pausedByUser } = situation;
  const wanted = toCanonical(state.version);
  const active = state.activeVersion === 0 ? wanted : toCanonical(state.activeVersion);
  const paused =
    !isSettled(state) && (pausedByUser || (state.phase === 'failed' && !isFirstRollout(state)));
  const leavesBlueGreen =
    state.strategy === 'blueGreen' &&
    situation.settings.strategy !== 'blueGreen' &&
    !isSettled(state);
  return {
    ...observed,
    version: leavesBlueGreen ? active : wanted,
    baseVersion: active,
    paused,
    strategy: toStrategy(state, situation, active, updated),
  };
}

function toStrategy(
  state: RolloutState,
  { settings, toCanonical, nowMs }: RolloutSituation,
  activeVersion: number,
  updated: number | undefined,
): RolloutStrategy {
  if (state.strategy === 'recreate') return { kind: 'recreate' };
  if (state.strategy === 'rollingUpdate')
    return { kind: 'rollingUpdate', ...definedFields({ updated }) };
  const kept = state.switchedAtMs !== undefined && nowMs - state.switchedAtMs < settings.pauseMs;
  const needsPromotion =
    settings.manualSwitch && !state.promoted && !isFirstRollout(state) && state.rollsBackFrom === 0;
  return {
    kind: 'blueGreen',
    activeVersion,
    maySwitch: !needsPromotion,
    ...(kept && state.fromVersion !== 0 ? { keepVersion: toCanonical(state.fromVersion) } : {}),
  };
}

function recordSwitch(
  state: RolloutState,
  { nowMs, settings }: RolloutSituation,
  events: RolloutEvent[],
): RolloutState {
  const kept =
    settings.pauseMs > 0
      ? `; version ${state.activeVersion} is kept for ${formatDuration(settings.pauseMs)}`
      : '';
  events.push({
    kind: 'switched',
    message: `traffic is switched to version ${state.version}${kept}`,
  });
  return {
    ...state,
    activeVersion: state.version,
    switchedAtMs: nowMs,
    promoted: false,
    waitsForPromotion: false,
  };
}

/**
 * Restarts the progress deadline after progress: more available replicas of the wanted version, or
 * fewer replicas of other versions, than ever before in this rollout. A change of the spec restarts
 * the deadline too.
 */
function recordProgress(state: RolloutState, situation: RolloutSituation): RolloutState {
  if (isSettled(state)) return state;
  const wanted = situation.toCanonical(state.version);
  const otherReplicas = countWhere(
    situation.observed.replicas,
    (replica) => !replica.lost && replica.version !== wanted,
  );
  const progress = countAvailable(situation) - otherReplicas;
  const hasProgressed = progress > state.bestProgress;
  if (!hasProgressed && !situation.changed) return state;
  return {
    ...state,
    bestProgress: Math.max(progress, state.bestProgress),
    progressAtMs: situation.nowMs,
  };
}

/** Derives phase, reason and waits of the next state from the decision, and adds their events. */
function concludeDecision(
  state: RolloutState,
  situation: RolloutSituation,
  decision: RolloutDecision,
  { events, wasWaiting }: { readonly events: RolloutEvent[]; readonly wasWaiting: boolean },
): RolloutState {
  if (isSettled(state))
    return { ...state, reason: decision.kind === 'waiting' ? decision.reason.text : '' };
  if (decision.kind === 'converged' && isComplete(state, situation))
    return markCompleted(state, events);
  if (state.phase === 'failed') return state;
  const { pausedByUser, settings, nowMs } = situation;
  const text = explainDecision(decision, situation);
  const waitKind = decision.kind === 'waiting' ? decision.reason.kind : undefined;
  const waitsForPromotion =
    waitKind === 'promotion' || (state.stepReachedAtMs !== undefined && state.waitsForPromotion);
  const paused = pausedByUser || waitsForPromotion || waitKind === 'impossibleLimits';
  const phase = paused ? 'paused' : 'inProgress';
  if (pausedByUser && state.phase !== 'paused')
    events.push({ kind: 'paused', message: `version ${state.version} is paused` });
  if (waitKind === 'promotion' && !wasWaiting)
    events.push({ kind: 'awaitsPromotion', message: text });
  if (state.phase === 'paused' && !paused && !wasWaiting)
    events.push({ kind: 'resumed', message: `version ${state.version} continues` });
  const next: RolloutState = {
    ...omitTimes(state, 'waitsUntilMs'),
    phase,
    reason: pausedByUser
      ? `paused by a user${text === '' ? '' : `; ${text}`}`
      : explainStepWait(state, situation, text),
    waitsForPromotion,
    // Time in a pause does not count against the progress deadline.
    ...(state.phase === 'paused' && !paused ? { progressAtMs: nowMs } : {}),
    // The time for which the previous version is kept while the new set is complete does not count
    // either.
    ...(waitKind === 'kept'
      ? { progressAtMs: (state.switchedAtMs ?? nowMs) + settings.pauseMs }
      : {}),
  };
  const untilMs = waitKind === 'kept' ? next.progressAtMs : findNextDeadline(next, situation);
  return untilMs === undefined || phase === 'paused' ? next : { ...next, waitsUntilMs: untilMs };
}

/** Returns the reason of a wait, also of a wait for pinned nodes; empty when there is no wait. */
function explainDecision(decision: RolloutDecision, { observed }: RolloutSituation): string {
  const { pinnedNodes = [] } = observed;
  if (decision.kind === 'waiting') return decision.reason.text;
  if (decision.kind === 'steps' || pinnedNodes.length === 0) return '';
  const [subject, where] =
    pinnedNodes.length === 1
      ? ['1 replica stays', 'its node takes']
      : [`${pinnedNodes.length} replicas stay`, 'their nodes take'];
  return `${subject} at another version as ${where} nothing new: ${pinnedNodes.join(', ')}`;
}

/**
 * Returns true when a converged decision completes the rollout. The decision does not complete it
 * at a canary step, with pinned nodes, or during a change from blue/green to another strategy.
 */
function isComplete(state: RolloutState, situation: RolloutSituation): boolean {
  const { version, strategy, activeVersion } = state;
  const { observed, toCanonical } = situation;
  const wanted = toCanonical(version);
  if (hasOpenCanaryStep(state, situation) || (observed.pinnedNodes ?? []).length > 0) return false;
  if (
    strategy === 'blueGreen' &&
    toCanonical(activeVersion === 0 ? version : activeVersion) !== wanted
  )
    return false;
  return observed.replicas.every((replica) => replica.lost || replica.version === wanted);
}

function markCompleted(state: RolloutState, events: RolloutEvent[]): RolloutState {
  const { version, rollsBackFrom } = state;
  if (rollsBackFrom === 0)
    events.push({
      kind: 'completed',
      message: `version ${version} is rolled out: no replica of another version is left`,
    });
  else
    events.push({
      kind: 'rolledBack',
      message: `version ${version} is rolled out: it restores the template from before version ${rollsBackFrom}, which failed`,
    });
  return {
    ...omitTimes(state, 'waitsUntilMs', 'stepReachedAtMs', 'switchedAtMs'),
    phase: rollsBackFrom === 0 ? 'completed' : 'rolledBack',
    reason: '',
    activeVersion: version,
    waitsForPromotion: false,
    promoted: false,
    rollsBackFrom: 0,
  };
}

/** Returns the end of the current canary step, else of the progress deadline. */
function findNextDeadline(state: RolloutState, situation: RolloutSituation): number | undefined {
  if (state.phase !== 'inProgress') return undefined;
  const step = situation.settings.canarySteps[state.stepsDone];
  if (state.gate !== undefined && step?.gate !== undefined)
    return findGateTime(state, situation, step);
  if (state.stepReachedAtMs !== undefined && step !== undefined && step.wait !== 'promotion')
    return state.stepReachedAtMs + step.wait.ms;
  return getProgressDeadline(state, situation);
}

/** Returns the time of the next decision that time alone requires. */
function computeWakeTime(
  { waitsUntilMs, gate }: RolloutState,
  { nowMs }: RolloutSituation,
): number | undefined {
  const maxWakeMs = gate === undefined ? MAX_WAKE_MS : GATE_INTERVAL_MS;
  // A deadline in the past has no effect by now: another change, such as the confirmation of a
  // stop, causes the next decision.
  if (waitsUntilMs !== undefined && waitsUntilMs > nowMs)
    return Math.min(waitsUntilMs, nowMs + maxWakeMs);
  return gate === undefined ? undefined : nowMs + maxWakeMs;
}

/** Milliseconds until the next decision at the latest, as the wall clock may be set meanwhile. */
const MAX_WAKE_MS = 60_000;
