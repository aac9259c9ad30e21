import { nextSteps, type RolloutDecision } from './next-steps.js';
import type { RolloutObserved, RolloutReplica, RolloutStrategy } from './observed.js';
import { NO_ROLLOUT, isFirst, isSettled, readyOf, textOfMs, without } from './rollout-state.js';
import type {
  RolloutAdvance,
  RolloutNews,
  RolloutSituation,
  RolloutState,
} from './rollout-state.js';
import { hasOpenStage, passStages, reasonOf } from './stages.js';

/**
 * Advances a rollout by one decision: starts it, passes canary steps, detects its failure, and asks
 * the planner for the next steps. Pure: the caller stores the state and applies the steps in one
 * transaction, so that a crash between two decisions loses nothing.
 */
export function advanceRollout(before: RolloutState, situation: RolloutSituation): RolloutAdvance {
  const news: RolloutNews[] = [];
  let state = begun(rewound(before, situation.nowMs), situation, news);
  state = noteProgress(retried(followed(state, situation), situation, news), situation);
  const failure = failureOf(state, situation);
  if (failure !== undefined) {
    state = {
      ...without(state, 'untilMs'),
      phase: 'failed',
      reason: failure,
      waitsForPromotion: false,
    };
    news.push({ kind: 'failed', message: `version ${state.version} failed: ${failure}` });
    if (goesBack(state, situation)) {
      state = { ...state, rollsBack: state.version };
      const observed = observedOf(state, situation, undefined);
      return { state, observed, decision: STAND_STILL, rollBackTo: state.fromVersion, news };
    }
  }
  const staged = passStages(state, situation, news);
  state = staged.state;
  const observed = observedOf(state, situation, staged.updated);
  const decision = nextSteps(observed);
  if (decision.kind === 'steps' && decision.steps.some(({ kind }) => kind === 'switchVersion')) {
    state = switched(state, situation, news);
  }
  state = concluded(state, situation, decision, { news, wasWaiting: before.waitsForPromotion });
  const wakeAtMs = wakeAt(state, situation);
  return { state, observed, decision, news, ...(wakeAtMs === undefined ? {} : { wakeAtMs }) };
}

/** Limits stored times to the present, so that a clock that was set back prolongs no wait. */
function rewound(state: RolloutState, nowMs: number): RolloutState {
  const { progressAtMs, stageReachedAtMs, switchedAtMs } = state;
  return {
    ...state,
    progressAtMs: Math.min(progressAtMs, nowMs),
    ...(stageReachedAtMs === undefined
      ? {}
      : { stageReachedAtMs: Math.min(stageReachedAtMs, nowMs) }),
    ...(switchedAtMs === undefined ? {} : { switchedAtMs: Math.min(switchedAtMs, nowMs) }),
  };
}

/** The decision while a rollback is being written: no steps. */
const STAND_STILL: RolloutDecision = {
  kind: 'waiting',
  reason: { kind: 'paused', text: 'rolling back to the previous version' },
  wakeOn: { kind: 'spec' },
};

function begun(
  state: RolloutState,
  situation: RolloutSituation,
  news: RolloutNews[],
): RolloutState {
  const { version, settings, nowMs, canonical } = situation;
  if (state.version === version) return state;
  const { activeVersion, strategy, rollsBack, fromVersion, switchedAtMs } = state;
  news.push({
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
    progress: Number.MIN_SAFE_INTEGER,
    progressAtMs: nowMs,
    // No promotion is needed to return to the previous version while it is kept.
    promoted:
      switchedAtMs !== undefined &&
      fromVersion !== 0 &&
      canonical(fromVersion) === canonical(version),
    // Stays set for the version that the rollback wrote; any other change ends the rollback.
    rollsBack: rollsBack === state.version ? rollsBack : 0,
  };
}

/**
 * Applies a change of the strategy. A rollout changes to blue/green only while replicas of one
 * version are live, as two versions cannot both be active; it changes from blue/green only when the
 * set that does not serve is gone.
 */
function followed(
  state: RolloutState,
  { settings, observed, canonical }: RolloutSituation,
): RolloutState {
  const { strategy } = settings;
  if (state.strategy === strategy) return state;
  const active = canonical(state.activeVersion === 0 ? state.version : state.activeVersion);
  const mixed = observed.replicas.some((replica) => !replica.lost && replica.version !== active);
  const free = mixed ? state.strategy !== 'blueGreen' && strategy !== 'blueGreen' : true;
  return free ? { ...without(state, 'switchedAtMs'), strategy } : state;
}

function retried(
  state: RolloutState,
  { failures, nowMs }: RolloutSituation,
  news: RolloutNews[],
): RolloutState {
  if (!state.retry) return state;
  const next = { ...state, retry: false };
  if (isSettled(state)) return next;
  if (state.phase !== 'failed') return { ...next, forgiven: failures };
  news.push({ kind: 'resumed', message: `version ${state.version} is retried` });
  return { ...next, phase: 'inProgress', reason: '', forgiven: failures, progressAtMs: nowMs };
}

function failureOf(state: RolloutState, situation: RolloutSituation): string | undefined {
  const { settings, failures, nowMs, pausedByUser } = situation;
  if (state.phase !== 'inProgress' || pausedByUser) return undefined;
  const failed = failures - state.forgiven;
  if (failed >= Math.max(1, settings.maxFailedNew))
    return `new replicas failed ${failed === 1 ? 'once' : `${failed} times`}`;
  const deadlineMs = deadlineOf(state, situation);
  if (deadlineMs !== undefined && nowMs >= deadlineMs)
    return `no progress for ${textOfMs(settings.progressDeadlineMs)}${state.reason === '' ? '' : `: ${state.reason}`}`;
  return undefined;
}

/**
 * When the rollout fails because it makes no progress; undefined while it waits for something else.
 */
function deadlineOf(state: RolloutState, situation: RolloutSituation): number | undefined {
  if (
    state.phase !== 'inProgress' ||
    state.stageReachedAtMs !== undefined ||
    awaitsStops(state, situation)
  )
    return undefined;
  return state.progressAtMs + situation.settings.progressDeadlineMs;
}

/**
 * Tells whether RECREATE still waits for stops of the previous version, which end within their
 * grace period.
 */
function awaitsStops(
  { strategy, version }: RolloutState,
  { observed, canonical }: RolloutSituation,
): boolean {
  const wanted = canonical(version);
  const isLeaving = (replica: RolloutReplica): boolean =>
    replica.version !== wanted && replica.desired === 'stopped';
  return (
    strategy === 'recreate' &&
    observed.replicas.some((replica) => !replica.lost && isLeaving(replica))
  );
}

function goesBack(state: RolloutState, { settings, canonical }: RolloutSituation): boolean {
  if (settings.onFailure !== 'rollback' || isFirst(state) || state.rollsBack !== 0) return false;
  return canonical(state.fromVersion) !== canonical(state.version);
}

function observedOf(
  state: RolloutState,
  situation: RolloutSituation,
  updated: number | undefined,
): RolloutObserved {
  const { canonical, observed, pausedByUser } = situation;
  const wanted = canonical(state.version);
  const active = state.activeVersion === 0 ? wanted : canonical(state.activeVersion);
  const paused =
    !isSettled(state) && (pausedByUser || (state.phase === 'failed' && !isFirst(state)));
  const leaves =
    state.strategy === 'blueGreen' &&
    situation.settings.strategy !== 'blueGreen' &&
    !isSettled(state);
  return {
    ...observed,
    version: leaves ? active : wanted,
    baseVersion: active,
    paused,
    strategy: strategyOf(state, situation, active, updated),
  };
}

function strategyOf(
  state: RolloutState,
  { settings, canonical, nowMs }: RolloutSituation,
  activeVersion: number,
  updated: number | undefined,
): RolloutStrategy {
  if (state.strategy === 'recreate') return { kind: 'recreate' };
  if (state.strategy === 'rollingUpdate')
    return { kind: 'rollingUpdate', ...(updated === undefined ? {} : { updated }) };
  const kept = state.switchedAtMs !== undefined && nowMs - state.switchedAtMs < settings.pauseMs;
  const asks = settings.manualSwitch && !state.promoted && !isFirst(state) && state.rollsBack === 0;
  return {
    kind: 'blueGreen',
    activeVersion,
    maySwitch: !asks,
    ...(kept && state.fromVersion !== 0 ? { keepVersion: canonical(state.fromVersion) } : {}),
  };
}

function switched(
  state: RolloutState,
  { nowMs, settings }: RolloutSituation,
  news: RolloutNews[],
): RolloutState {
  const kept =
    settings.pauseMs > 0
      ? `; version ${state.activeVersion} is kept for ${textOfMs(settings.pauseMs)}`
      : '';
  news.push({
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
 * Records progress: more available replicas of the wanted version, and fewer of other versions,
 * than ever before in this rollout.
 */
function noteProgress(state: RolloutState, situation: RolloutSituation): RolloutState {
  if (isSettled(state)) return state;
  const wanted = situation.canonical(state.version);
  const others = situation.observed.replicas.filter(
    (replica) => !replica.lost && replica.version !== wanted,
  ).length;
  const progress = readyOf(situation) - others;
  const further = progress > state.progress;
  if (!further && !situation.changed) return state;
  return { ...state, progress: Math.max(progress, state.progress), progressAtMs: situation.nowMs };
}

function concluded(
  state: RolloutState,
  situation: RolloutSituation,
  decision: RolloutDecision,
  { news, wasWaiting }: { readonly news: RolloutNews[]; readonly wasWaiting: boolean },
): RolloutState {
  if (isSettled(state))
    return { ...state, reason: decision.kind === 'waiting' ? decision.reason.text : '' };
  if (decision.kind === 'converged' && isThere(state, situation)) return completed(state, news);
  if (state.phase === 'failed') return state;
  const { pausedByUser, settings, nowMs } = situation;
  const text = decision.kind === 'waiting' ? decision.reason.text : '';
  const why = decision.kind === 'waiting' ? decision.reason.kind : undefined;
  const waitsForPromotion =
    why === 'promotion' || (state.stageReachedAtMs !== undefined && state.waitsForPromotion);
  const paused = pausedByUser || waitsForPromotion || why === 'impossibleLimits';
  const phase = paused ? 'paused' : 'inProgress';
  if (pausedByUser && state.phase !== 'paused')
    news.push({ kind: 'paused', message: `version ${state.version} is paused` });
  if (why === 'promotion' && !wasWaiting) news.push({ kind: 'awaitsPromotion', message: text });
  if (state.phase === 'paused' && !paused && !wasWaiting)
    news.push({ kind: 'resumed', message: `version ${state.version} continues` });
  const next: RolloutState = {
    ...without(state, 'untilMs'),
    phase,
    reason: pausedByUser
      ? `paused by a user${text === '' ? '' : `; ${text}`}`
      : reasonOf(state, situation, text),
    waitsForPromotion,
    // Time in a pause does not count against the progress deadline.
    ...(state.phase === 'paused' && !paused ? { progressAtMs: nowMs } : {}),
    // Neither does the time for which the previous version is kept while the new set is complete.
    ...(why === 'kept' ? { progressAtMs: (state.switchedAtMs ?? nowMs) + settings.pauseMs } : {}),
  };
  const untilMs = why === 'kept' ? next.progressAtMs : dueAt(next, situation);
  return untilMs === undefined || phase === 'paused' ? next : { ...next, untilMs };
}

/**
 * Tells whether a converged decision completes the rollout. At a canary step, or during a change
 * from blue/green to another strategy, it does not.
 */
function isThere(state: RolloutState, situation: RolloutSituation): boolean {
  const { version, strategy, activeVersion } = state;
  const { observed, canonical } = situation;
  const wanted = canonical(version);
  if (hasOpenStage(state, situation)) return false;
  if (
    strategy === 'blueGreen' &&
    canonical(activeVersion === 0 ? version : activeVersion) !== wanted
  )
    return false;
  return observed.replicas.every((replica) => replica.lost || replica.version === wanted);
}

function completed(state: RolloutState, news: RolloutNews[]): RolloutState {
  const { version, rollsBack } = state;
  if (rollsBack === 0)
    news.push({
      kind: 'completed',
      message: `version ${version} is rolled out: no replica of another version is left`,
    });
  else
    news.push({
      kind: 'rolledBack',
      message: `version ${version} is rolled out: it restores the template from before version ${rollsBack}, which failed`,
    });
  return {
    ...without(state, 'untilMs', 'stageReachedAtMs', 'switchedAtMs'),
    phase: rollsBack === 0 ? 'completed' : 'rolledBack',
    reason: '',
    activeVersion: version,
    waitsForPromotion: false,
    promoted: false,
    rollsBack: 0,
  };
}

/** When the current canary step or the progress deadline ends. */
function dueAt(state: RolloutState, situation: RolloutSituation): number | undefined {
  if (state.phase !== 'inProgress') return undefined;
  const stage = situation.settings.stages[state.stagesDone];
  if (state.stageReachedAtMs !== undefined && stage !== undefined && stage.wait !== 'promotion')
    return state.stageReachedAtMs + stage.wait.ms;
  return deadlineOf(state, situation);
}

function wakeAt({ untilMs }: RolloutState, { nowMs }: RolloutSituation): number | undefined {
  // A deadline in the past depends on something else by now, such as unconfirmed stops.
  return untilMs === undefined || untilMs <= nowMs
    ? undefined
    : Math.min(untilMs, nowMs + MAX_WAKE_MS);
}

/** Longest time until the next check, as wall clocks may be set. */
const MAX_WAKE_MS = 60_000;
