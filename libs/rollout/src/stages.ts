import { isFirst, isSettled, readyOf, textOfMs, without } from './rollout-state.js';
import type { RolloutNews, RolloutSituation, RolloutStage, RolloutState } from './rollout-state.js';

/** Passes the canary steps that are done. @returns How many replicas may run the new version; undefined: all. */
export function passStages(
  state: RolloutState,
  situation: RolloutSituation,
  news: RolloutNews[],
): { readonly state: RolloutState; readonly updated?: number } {
  const { settings, observed, nowMs, pausedByUser } = situation;
  const { stages } = settings;
  if (isSettled(state) || isFirst(state) || state.strategy !== 'rollingUpdate') return { state };
  let next = state;
  for (let index = next.stagesDone; index < stages.length; index += 1) {
    const stage = stages[index];
    if (stage === undefined) break;
    const updated = sizeOf(stage, observed.want);
    if (readyOf(situation) < updated || next.phase === 'failed' || pausedByUser) {
      const lostIt = next.stageReachedAtMs !== undefined && readyOf(situation) < updated;
      next = lostIt
        ? { ...without(next, 'stageReachedAtMs'), waitsForPromotion: false, promoted: false, progressAtMs: nowMs }
        : next;
      return { state: next, updated };
    }
    if (next.stageReachedAtMs === undefined) {
      next = { ...next, stageReachedAtMs: nowMs, progressAtMs: nowMs, waitsForPromotion: stage.wait === 'promotion' };
      const waits = stage.wait === 'promotion' ? 'waits for a promotion' : `waits ${textOfMs(stage.wait.ms)}`;
      const text = `step ${index + 1} of ${stages.length}: ${updated} of ${observed.want} replicas run version ${state.version}`;
      news.push({ kind: 'stageReached', message: `${text}; ${waits}` });
    }
    const over = stage.wait === 'promotion' ? next.promoted : nowMs - (next.stageReachedAtMs ?? nowMs) >= stage.wait.ms;
    // Said anew each time: a stop that is not confirmed hides it for a while.
    if (!over) return { state: { ...next, waitsForPromotion: stage.wait === 'promotion' }, updated };
    next = {
      ...without(next, 'stageReachedAtMs'),
      stagesDone: index + 1,
      waitsForPromotion: false,
      promoted: false,
      progressAtMs: nowMs,
    };
  }
  return { state: next };
}

/** How many replicas a step brings to the new version. */
export const sizeOf = ({ size }: RolloutStage, want: number): number =>
  Math.min(want, 'replicas' in size ? size.replicas : Math.ceil((size.percent * want) / 100));

/** What a rollout at a canary step waits for. @param text - What the planner waits for. */
export function reasonOf(state: RolloutState, { settings, observed }: RolloutSituation, text: string): string {
  const stage = settings.stages[state.stagesDone];
  if (state.strategy !== 'rollingUpdate' || isFirst(state) || stage === undefined) return text;
  const step = `step ${state.stagesDone + 1} of ${settings.stages.length}`;
  if (state.stageReachedAtMs === undefined) return `${step}${text === '' ? '' : `: ${text}`}`;
  const reached = `${step}: ${sizeOf(stage, observed.want)} of ${observed.want} replicas run version ${state.version}`;
  return `${reached}; waits ${stage.wait === 'promotion' ? 'for a promotion' : `${textOfMs(stage.wait.ms)} since they were ready`}`;
}
