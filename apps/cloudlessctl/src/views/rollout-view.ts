import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  RolloutGateStatus_Verdict,
  RolloutStatus_Phase,
  Rollout_Strategy,
  isRolledOut,
} from '@cloudless/api';
import type {
  ReplicaStatus,
  RolloutFailure,
  RolloutStatus,
  VersionInfo,
  Workload,
} from '@cloudless/api';
import { formatAge, formatSpan, formatWord } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable, toOneLine } from '../output/table.js';
import { countRollout, describeCounts, describeProgress } from '../wait/rollout-counts.js';

/** Formats the phase of a rollout: `Paused, step 2 of 3`; empty without a rollout. */
export function formatRolloutPhase(rollout: RolloutStatus | undefined): string {
  if (rollout === undefined) return '';
  const step = rollout.step === 0 ? '' : `, step ${rollout.step} of ${rollout.steps}`;
  return formatWord(RolloutStatus_Phase[rollout.phase] ?? '') + step;
}

/**
 * Returns the reason why a rollout waits or has failed; empty when the rollout is complete or
 * rolled back.
 */
export function getUnsettledReason(rollout: RolloutStatus | undefined): string {
  if (rollout === undefined) return '';
  const { phase, reason, failure } = rollout;
  if (isRolledOut(phase)) return '';
  return phase === RolloutStatus_Phase.FAILED ? failure?.reason || reason : reason;
}

/** Formats the state of a rollout on one line: versions, phase, replica counts and reason. */
export function formatRolloutLine(workload: Workload): string {
  const { rollout } = workload.status ?? {};
  const reason = rollout?.reason ?? '';
  // The reason contains the step when the rollout waits at a step.
  const phase = reason.includes('step ')
    ? formatWord(RolloutStatus_Phase[rollout?.phase ?? 0] ?? '')
    : formatRolloutPhase(rollout);
  if (rollout?.phase === RolloutStatus_Phase.COMPLETED && countRollout(workload).old === 0)
    return `${formatVersions(workload)} is rolled out: ${describeCounts(workload)}`;
  return `${formatVersions(workload)}: ${phase}, ${describeProgress(workload)}`;
}

/**
 * Formats the versions: `version 2, from version 1`. The previous version is left out once the
 * rollout is complete.
 */
export function formatVersions({ status }: Workload): string {
  const { version = 0, fromVersion = 0 } = status?.rollout ?? {};
  const newest = version === 0 ? (status?.version ?? 0) : version;
  const isCompleted = status?.rollout?.phase === RolloutStatus_Phase.COMPLETED;
  return `version ${newest}${isCompleted || fromVersion === 0 || fromVersion === newest ? '' : `, from version ${fromVersion}`}`;
}

/**
 * Describes the time at which the state of a rollout ends by itself: `fails if nothing happens for
 * 9m` for the progress deadline, otherwise `4m left`. Empty without such a time.
 */
export function describeLimit(rollout: RolloutStatus | undefined, nowMs: number): string {
  if (rollout?.until === undefined || isRolledOut(rollout.phase)) return '';
  if (rollout.phase === RolloutStatus_Phase.FAILED) return '';
  const left = formatSpan(Math.ceil((timestampMs(rollout.until) - nowMs) / 1000) * 1000);
  const isPause = /\bstep \d|kept/.test(rollout.reason);
  return isPause ? `${left} left` : `fails if nothing happens for ${left}`;
}

/** Returns lines with the failing replica, its exit code and its last log lines. */
export function formatFailure({
  replicaId,
  nodeId,
  exitCode,
  lastLines,
}: RolloutFailure): readonly string[] {
  if (replicaId === '') return [];
  const nodeText = nodeId === '' ? '' : ` on ${nodeId}`;
  const exitText = exitCode === undefined ? '' : `, exit code ${exitCode}`;
  return [
    `failing replica: ${replicaId}${nodeText}${exitText}`,
    ...formatLastLines(replicaId, lastLines),
  ];
}

/** Returns the last log lines of a replica below a title; empty without lines. */
export function formatLastLines(replicaId: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0
    ? []
    : [`last lines of ${replicaId}:`, ...lines.map((line) => `  ${toOneLine(line)}`)];
}

/**
 * Number of failing replicas whose log is shown. Further replicas seldom fail for other reasons.
 */
const MAX_FAILING_REPLICAS = 3;

/** Returns the last log lines of the newest failing replicas. */
export function formatFailingReplicas(replicas: readonly ReplicaStatus[]): readonly string[] {
  const failing = replicas.filter(({ ready, lastLines }) => !ready && lastLines.length > 0);
  return failing
    .slice(-MAX_FAILING_REPLICAS)
    .flatMap(({ id, lastLines }) => formatLastLines(id, lastLines));
}

/** Returns the fields of a rollout for `describe`; none without a rollout. */
export function getRolloutFields(
  workload: Workload,
  nowMs: number,
): readonly (readonly [string, string])[] {
  const { rollout } = workload.status ?? {};
  if (rollout === undefined) return [];
  const { strategy, reason, failedNew, failure } = rollout;
  // A complete rollout waits for nothing; `settling` then means a replica that was just replaced.
  const isRepeated =
    reason === failure?.reason || (isRolledOut(rollout.phase) && reason === 'settling');
  return [
    ['Phase', formatRolloutPhase(rollout)],
    ['Strategy', formatWord(Rollout_Strategy[strategy] ?? '')],
    ['Version', formatVersions(workload).replace(/^version /, '')],
    ['Started', formatDurationOfRollout(rollout, nowMs)],
    ['Reason', isRepeated ? '' : reason],
    ['Gate', formatGate(rollout, nowMs)],
    ['Limit', describeLimit(rollout, nowMs)],
    ['Failed new', failedNew === 0 ? '' : String(failedNew)],
    ['Failure', failure === undefined ? '' : `version ${failure.version}: ${failure.reason}`],
  ];
}

/**
 * Formats the gate of the current step with its figures: `true for 40s: errors_per_s = 0.2, p99_ms =
 * 130`. Empty without a gate.
 */
export function formatGate({ gate }: RolloutStatus, nowMs: number): string {
  if (gate === undefined) return '';
  const span = gate.since === undefined ? '' : formatSpan(nowMs - timestampMs(gate.since));
  const verdict = `${GATE_VERDICTS[gate.verdict] ?? ''}${span === '' ? '' : ` for ${span}`}`;
  const figures = gate.values
    .map(({ name, value }) => `${name} = ${value === undefined ? 'missing' : formatFigure(value)}`)
    .join(', ');
  const reason = gate.reason === '' ? '' : ` (${toOneLine(gate.reason)})`;
  return `${toOneLine(gate.expression)} is ${verdict}${figures === '' ? '' : `: ${figures}`}${reason}`;
}

const GATE_VERDICTS: Readonly<Record<RolloutGateStatus_Verdict, string>> = {
  [RolloutGateStatus_Verdict.NO_DATA]: 'without a result',
  [RolloutGateStatus_Verdict.PASSED]: 'true',
  [RolloutGateStatus_Verdict.FAILED]: 'false',
};

function formatFigure(value: number): string {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}

/** Formats start and duration: `7s ago`, after the end `7m ago, took 14s`. */
function formatDurationOfRollout({ startedAt, endedAt }: RolloutStatus, nowMs: number): string {
  if (startedAt === undefined) return '';
  const took =
    endedAt === undefined
      ? ''
      : `, took ${formatSpan(timestampMs(endedAt) - timestampMs(startedAt))}`;
  return `${formatAge(startedAt, nowMs)} ago${took}`;
}

/** Formats the stored versions as a table, oldest first, each with what it changed. */
export function formatVersionTable(
  versions: readonly VersionInfo[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    [
      'VERSION',
      'ACTIVE',
      'CREATED',
      { header: 'CAUSE', fit: 'wrap', minWidth: 16 },
      { header: 'SAME AS', dropOrder: 1 },
      { header: 'CHANGES', fit: 'wrap', minWidth: 16 },
    ],
    [...versions]
      .sort((a, b) => a.version - b.version)
      .map(({ version, active, createdAt, cause, sameAs, summary, changes }) => [
        String(version),
        active ? { text: 'yes', paint: style.green } : '',
        createdAt === undefined ? '' : `${formatAge(createdAt, nowMs)} ago`,
        cause === '' ? (version === 1 ? 'create' : 'change') : cause,
        sameAs === 0 || sameAs === version ? '' : String(sameAs),
        // The oldest kept version has nothing to compare with.
        changes.length > 0 ? changes.join(', ') : cause === 'restart' ? 'nothing' : summary,
      ]),
    style,
  );
}
