import { isFirst, isSettled, readyOf, textOfMs, without } from './rollout-state.js';
import type { RolloutNews, RolloutSituation, RolloutStage, RolloutState } from './rollout-state.js';

/**
 * Passes completed canary steps.
 * @returns How many replicas may run the new version; undefined: all.
 */
export function passStages(
  state: RolloutState,
  situation: RolloutSituation,
  news: RolloutNews[],
): { readonly state: RolloutState; readonly updated?: number } {
  const { settings, observed, nowMs, pausedByUser } = situation;
  const { stages } = settings;
  if (!hasStages(state, situation)) return { state: leftStage(state, nowMs) };
  let next = state;
  for (let index = next.stagesDone; index < stages.length; index += 1) {
    const stage = stages[index];
    if (stage === undefined) break;
    const updated = sizeOf(stages, index, observed.want);
    if (readyOf(situation) < updated || next.phase === 'failed' || pausedByUser) {
      const lostIt = next.stageReachedAtMs !== undefined && readyOf(situation) < updated;
      return { state: lostIt ? { ...leftStage(next, nowMs), promoted: false } : next, updated };
    }
    if (next.stageReachedAtMs === undefined) {
      next = {
        ...next,
        stageReachedAtMs: nowMs,
        progressAtMs: nowMs,
        waitsForPromotion: stage.wait === 'promotion',
      };
      const waits =
        stage.wait === 'promotion' ? 'waits for a promotion' : `waits ${textOfMs(stage.wait.ms)}`;
      const text = `step ${index + 1} of ${stages.length}: ${updated} of ${observed.want} replicas run version ${state.version}`;
      news.push({ kind: 'stageReached', message: `${text}; ${waits}` });
    }
    const over =
      stage.wait === 'promotion'
        ? next.promoted
        : nowMs - (next.stageReachedAtMs ?? nowMs) >= stage.wait.ms;
    // Set at every decision: an unconfirmed stop may have cleared it.
    if (!over)
      return { state: { ...next, waitsForPromotion: stage.wait === 'promotion' }, updated };
    next = { ...leftStage(next, nowMs), stagesDone: index + 1, promoted: false };
  }
  return { state: leftStage(next, nowMs) };
}

/** Tells whether canary steps are left. */
export const hasOpenStage = (state: RolloutState, situation: RolloutSituation): boolean =>
  hasStages(state, situation) && state.stagesDone < situation.settings.stages.length;

/**
 * Tells whether canary steps apply. They do not for a first deployment or a rollback, whose
 * template is known.
 */
function hasStages(state: RolloutState, { observed, canonical }: RolloutSituation): boolean {
  if (
    isSettled(state) ||
    isFirst(state) ||
    state.strategy !== 'rollingUpdate' ||
    observed.want === 0
  )
    return false;
  return state.rollsBack === 0 && canonical(state.fromVersion) !== canonical(state.version);
}

/** Leaves the current canary step, also when the step was removed from the spec during its wait. */
function leftStage(state: RolloutState, nowMs: number): RolloutState {
  if (state.stageReachedAtMs === undefined) return state;
  return { ...without(state, 'stageReachedAtMs'), waitsForPromotion: false, progressAtMs: nowMs };
}

/**
 * The number of updated replicas at a canary step: never fewer than at an earlier step, in whatever
 * unit the steps are given.
 */
export function sizeOf(stages: readonly RolloutStage[], index: number, want: number): number {
  const sizes = stages
    .slice(0, index + 1)
    .map(({ size }) =>
      'replicas' in size ? size.replicas : Math.ceil((size.percent * want) / 100),
    );
  return Math.min(want, Math.max(...sizes));
}

/**
 * The wait reason of a rollout at a canary step.
 * @param text - The wait reason of the planner.
 */
export function reasonOf(state: RolloutState, situation: RolloutSituation, text: string): string {
  const { settings, observed } = situation;
  const stage = settings.stages[state.stagesDone];
  if (stage === undefined || !hasStages(state, situation)) return text;
  const step = `step ${state.stagesDone + 1} of ${settings.stages.length}`;
  if (state.stageReachedAtMs === undefined) return `${step}${text === '' ? '' : `: ${text}`}`;
  const reached = `${step}: ${sizeOf(settings.stages, state.stagesDone, observed.want)} of ${observed.want} replicas run version ${state.version}`;
  return `${reached}; waits ${stage.wait === 'promotion' ? 'for a promotion' : `${textOfMs(stage.wait.ms)} since they were ready`}`;
}
