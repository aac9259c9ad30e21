import { create } from '@bufbuild/protobuf';
import { timestampFromMs, timestampMs, type Timestamp } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  Rollout_OnFailure as OnFailure,
  Rollout_Promotion as Promotion,
  Rollout_Strategy as Strategy,
  RolloutGateStatus_Verdict as Verdict,
  RolloutStatus_Phase as Phase,
  type Rollout_Step,
  type WorkloadSpec,
} from '@cloudless/api';
import { RolloutRecordSchema, type ControlRecord } from '@cloudless/api/store';
import {
  NO_ROLLOUT,
  type RolloutPhase,
  type RolloutSettings,
  type CanaryStep,
  type GateVerdict,
  type RolloutState,
} from '@cloudless/rollout';
import { toMs } from '../common/duration.js';
import { getSpecWithDefaults } from '../common/spec-defaults.js';

const strategies: Record<Strategy, RolloutState['strategy']> = {
  [Strategy.ROLLING_UPDATE]: 'rollingUpdate',
  [Strategy.RECREATE]: 'recreate',
  [Strategy.BLUE_GREEN]: 'blueGreen',
};
const strategyNumbers: Record<RolloutState['strategy'], Strategy> = {
  rollingUpdate: Strategy.ROLLING_UPDATE,
  recreate: Strategy.RECREATE,
  blueGreen: Strategy.BLUE_GREEN,
};

const phases: Record<Phase, RolloutPhase> = {
  [Phase.STARTING]: 'starting',
  [Phase.IN_PROGRESS]: 'inProgress',
  [Phase.PAUSED]: 'paused',
  [Phase.FAILED]: 'failed',
  [Phase.COMPLETED]: 'completed',
  [Phase.ROLLED_BACK]: 'rolledBack',
};
const phaseNumbers: Record<RolloutPhase, Phase> = {
  starting: Phase.STARTING,
  inProgress: Phase.IN_PROGRESS,
  paused: Phase.PAUSED,
  failed: Phase.FAILED,
  completed: Phase.COMPLETED,
  rolledBack: Phase.ROLLED_BACK,
};

const verdicts: Record<Verdict, GateVerdict> = {
  [Verdict.NO_DATA]: 'noData',
  [Verdict.PASSED]: 'passed',
  [Verdict.FAILED]: 'failed',
};
const verdictNumbers: Record<GateVerdict, Verdict> = {
  noData: Verdict.NO_DATA,
  passed: Verdict.PASSED,
  failed: Verdict.FAILED,
};

/** Converts the rollout settings of a spec, with their defaults. */
export function toRolloutSettings(spec: WorkloadSpec): RolloutSettings {
  const { rollout } = getSpecWithDefaults(spec);
  return {
    strategy: strategies[rollout?.strategy ?? Strategy.ROLLING_UPDATE],
    canarySteps: (rollout?.steps ?? []).map(toCanaryStep),
    manualSwitch: rollout?.promotion === Promotion.MANUAL,
    pauseMs: toMs(rollout?.pauseDuration),
    progressDeadlineMs: toMs(rollout?.progressDeadline),
    maxFailedNew:
      rollout?.maxFailedNewPercent === undefined
        ? (rollout?.maxFailedNew ?? 0)
        : { percent: rollout.maxFailedNewPercent },
    onFailure: rollout?.onFailure === OnFailure.ROLLBACK ? 'rollback' : 'pause',
  };
}

function toCanaryStep(step: Rollout_Step): CanaryStep {
  const { replicas, percent, weightPercent = 0, wait, promotion, gate } = step;
  return {
    // Without a size, the replicas for the connections that the step gives to the new version.
    size: replicas > 0 ? { replicas } : { percent: percent > 0 ? percent : weightPercent },
    wait: promotion === Promotion.MANUAL ? 'promotion' : { ms: toMs(wait) },
    ...(gate === '' ? {} : { gate }),
  };
}

/** Returns the rollout state that a control record holds. */
export function toRolloutState(control: ControlRecord): RolloutState {
  const { rollout } = control;
  if (rollout === undefined) {
    // The record was written by an older coordinator: its active version has been rolled out.
    const { activeVersion } = control;
    return activeVersion === 0
      ? NO_ROLLOUT
      : { ...NO_ROLLOUT, version: activeVersion, activeVersion, phase: 'completed' };
  }
  const { stepReachedAt, switchedAt, until, gateSince, gateVerdict } = rollout;
  const state: { -readonly [Key in keyof RolloutState]: RolloutState[Key] } = {
    phase: phases[control.rolloutPhase],
    reason: control.rolloutReason,
    version: rollout.version,
    fromVersion: rollout.fromVersion,
    activeVersion: control.activeVersion,
    strategy: strategies[rollout.strategy],
    startedAtMs: toTimestampMs(rollout.startedAt),
    stepsDone: rollout.stepsDone,
    waitsForPromotion: rollout.waitsForPromotion,
    promoted: rollout.promoted,
    retry: rollout.retry,
    forgivenFailures: rollout.forgiven,
    bestProgress: Number(rollout.progress),
    progressAtMs: toTimestampMs(rollout.progressAt),
    rollsBackFrom: rollout.rollsBack,
  };
  if (stepReachedAt !== undefined) state.stepReachedAtMs = timestampMs(stepReachedAt);
  if (gateSince !== undefined)
    state.gate = { verdict: verdicts[gateVerdict], sinceMs: timestampMs(gateSince) };
  if (switchedAt !== undefined) state.switchedAtMs = timestampMs(switchedAt);
  if (until !== undefined) state.waitsUntilMs = timestampMs(until);
  return state;
}

/**
 * Writes a rollout state into a control record, in place. Fields without a counterpart in the
 * state, such as the failure, stay as they are.
 */
export function writeRolloutState(control: ControlRecord, state: RolloutState): void {
  const { failure, failedNew = 0, failedGone = 0, firstSequence = 0n } = control.rollout ?? {};
  control.rolloutPhase = phaseNumbers[state.phase];
  control.rolloutReason = state.reason;
  control.activeVersion = state.activeVersion;
  control.rollout = create(RolloutRecordSchema, {
    version: state.version,
    fromVersion: state.fromVersion,
    strategy: strategyNumbers[state.strategy],
    startedAt: timestampFromMs(state.startedAtMs),
    stepsDone: state.stepsDone,
    waitsForPromotion: state.waitsForPromotion,
    promoted: state.promoted,
    retry: state.retry,
    forgiven: state.forgivenFailures,
    progress: BigInt(state.bestProgress),
    progressAt: timestampFromMs(state.progressAtMs),
    rollsBack: state.rollsBackFrom,
    failedNew,
    failedGone,
    firstSequence,
    ...(state.stepReachedAtMs === undefined
      ? {}
      : { stepReachedAt: timestampFromMs(state.stepReachedAtMs) }),
    ...(state.switchedAtMs === undefined
      ? {}
      : { switchedAt: timestampFromMs(state.switchedAtMs) }),
    ...(state.gate === undefined
      ? {}
      : {
          gateVerdict: verdictNumbers[state.gate.verdict],
          gateSince: timestampFromMs(state.gate.sinceMs),
        }),
    ...(state.waitsUntilMs === undefined ? {} : { until: timestampFromMs(state.waitsUntilMs) }),
    ...definedFields({ failure }),
  });
}

function toTimestampMs(at: Timestamp | undefined): number {
  return at === undefined ? 0 : timestampMs(at);
}
