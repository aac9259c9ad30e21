import { timestampMs } from '@bufbuild/protobuf/wkt';
import { RolloutStatus_Phase, Rollout_Strategy, isRolledOut } from '@cloudless/api';
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
import { countRollout } from '../wait/rollout-counts.js';
import type { RolloutCounts } from '../wait/rollout-counts.js';

/** Width of a progress bar in characters. */
const BAR_WIDTH = 30;

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
  const reason = toOneLine(rollout?.reason ?? '');
  // The reason contains the step when the rollout waits at a step.
  const phase = reason.includes('step ')
    ? formatWord(RolloutStatus_Phase[rollout?.phase ?? 0] ?? '')
    : formatRolloutPhase(rollout);
  const { desired, updatedReady, old, ready, minimum } = countRollout(workload);
  if (rollout?.phase === RolloutStatus_Phase.COMPLETED && old === 0) {
    return `${formatVersions(workload)} is rolled out: ${ready} of ${desired} ready (minimum ${minimum})`;
  }
  const counts = `${updatedReady} of ${desired} new ready, ${old} old, ${ready} ready (minimum ${minimum})`;
  return `${formatVersions(workload)}: ${phase}, ${counts}${reason === '' ? '' : `: ${reason}`}`;
}

/**
 * Returns the lines of the live view: progress bars of ready, new and old replicas, and the reason
 * for waiting.
 */
export function formatRolloutBlock(workload: Workload, nowMs: number): readonly string[] {
  const { rollout } = workload.status ?? {};
  const counts = countRollout(workload);
  const { desired, updated, updatedReady, old, ready, minimum } = counts;
  const scale = Math.max(1, desired, ready, updated, old);
  const timeLeft = formatTimeLeft(rollout, nowMs);
  return [
    `${'phase'.padEnd(6)} ${formatRolloutPhase(rollout)}`,
    `${'ready'.padEnd(6)} ${drawBar(ready, scale, minimum)} ${ready} of ${desired}, minimum ${minimum}`,
    `${'new'.padEnd(6)} ${drawBar(updatedReady, scale)} ${updatedReady} of ${desired} ready${formatStarting(counts)}`,
    `${'old'.padEnd(6)} ${drawBar(old, scale)} ${old}`,
    [rollout?.reason ?? '', timeLeft === '' ? '' : `(${timeLeft} left)`]
      .filter((part) => part !== '')
      .join(' '),
  ];
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
 * Formats a progress bar: `[#####|....]`.
 * @param scale - Count of a full bar.
 * @param mark - Count at which `|` is drawn: the required minimum.
 */
function drawBar(count: number, scale: number, mark?: number): string {
  const filled = Math.round((Math.min(count, scale) * BAR_WIDTH) / scale);
  const cells = [...'#'.repeat(filled).padEnd(BAR_WIDTH, '.')];
  if (mark !== undefined && mark > 0)
    cells[Math.min(BAR_WIDTH, Math.round((mark * BAR_WIDTH) / scale)) - 1] = '|';
  return `[${cells.join('')}]`;
}

function formatStarting({ updated, updatedReady }: RolloutCounts): string {
  return updated > updatedReady ? `, ${updated - updatedReady} starting` : '';
}

/**
 * Returns the time until the current step, pause or deadline ends: `4m30s`; empty without a time
 * limit.
 */
function formatTimeLeft(rollout: RolloutStatus | undefined, nowMs: number): string {
  if (rollout?.until === undefined || hasEnded(rollout)) return '';
  return formatSpan(Math.ceil((timestampMs(rollout.until) - nowMs) / 1000) * 1000);
}

/** Returns true when a rollout is complete, was rolled back or has failed. */
function hasEnded({ phase }: RolloutStatus): boolean {
  return isRolledOut(phase) || phase === RolloutStatus_Phase.FAILED;
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
  const { strategy, startedAt, reason, failedNew, failure } = rollout;
  return [
    ['Phase', formatRolloutPhase(rollout)],
    ['Strategy', formatWord(Rollout_Strategy[strategy] ?? '')],
    ['Version', formatVersions(workload)],
    ['Started', startedAt === undefined ? '' : `${formatAge(startedAt, nowMs)} ago`],
    ['Reason', reason === failure?.reason ? '' : reason],
    ['Time left', formatTimeLeft(rollout, nowMs)],
    ['Failed new', failedNew === 0 ? '' : String(failedNew)],
    ['Failure', failure === undefined ? '' : `version ${failure.version}: ${failure.reason}`],
  ];
}

/** Formats the stored versions as a table, oldest first. */
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
      { header: 'RUNS', fit: 'shorten', minWidth: 16 },
    ],
    [...versions]
      .sort((a, b) => a.version - b.version)
      .map(({ version, active, createdAt, cause, sameAs, summary }) => [
        String(version),
        active ? { text: 'yes', paint: style.green } : '',
        createdAt === undefined ? '' : `${formatAge(createdAt, nowMs)} ago`,
        cause === '' ? (version === 1 ? 'create' : 'change') : cause,
        sameAs === 0 || sameAs === version ? '' : String(sameAs),
        summary,
      ]),
    style,
  );
}
