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
import { formatTable, oneLine } from '../output/table.js';
import { rolloutCounts } from '../wait/rollout-counts.js';
import type { RolloutCounts } from '../wait/rollout-counts.js';

/** Width of a bar, in characters. */
const BAR_WIDTH = 30;

/** `Paused, step 2 of 3`; empty without a rollout. */
export function rolloutPhase(rollout: RolloutStatus | undefined): string {
  if (rollout === undefined) return '';
  const step = rollout.step === 0 ? '' : `, step ${rollout.step} of ${rollout.steps}`;
  return formatWord(RolloutStatus_Phase[rollout.phase] ?? '') + step;
}

/** What an unfinished rollout waits for, or why it failed. */
export function unsettledReason(rollout: RolloutStatus | undefined): string {
  if (rollout === undefined) return '';
  const { phase, reason, failure } = rollout;
  if (isRolledOut(phase)) return '';
  return phase === RolloutStatus_Phase.FAILED ? failure?.reason || reason : reason;
}

/** What a rollout has come to, on one line. */
export function rolloutLine(workload: Workload): string {
  const { rollout } = workload.status ?? {};
  const reason = oneLine(rollout?.reason ?? '');
  // The reason tells of the step where it waits for it.
  const phase = reason.includes('step ')
    ? formatWord(RolloutStatus_Phase[rollout?.phase ?? 0] ?? '')
    : rolloutPhase(rollout);
  const { desired, updatedReady, old, ready, minimum } = rolloutCounts(workload);
  if (rollout?.phase === RolloutStatus_Phase.COMPLETED && old === 0) {
    return `${versionsText(workload)} is rolled out: ${ready} of ${desired} ready (minimum ${minimum})`;
  }
  const counts = `${updatedReady} of ${desired} new ready, ${old} old, ${ready} ready (minimum ${minimum})`;
  return `${versionsText(workload)}: ${phase}, ${counts}${reason === '' ? '' : `: ${reason}`}`;
}

/** The lines of a live view: bars of what is ready, new and old, and what it waits for. */
export function rolloutBlock(workload: Workload, nowMs: number): readonly string[] {
  const { rollout } = workload.status ?? {};
  const counts = rolloutCounts(workload);
  const { desired, updated, updatedReady, old, ready, minimum } = counts;
  const scale = Math.max(1, desired, ready, updated, old);
  const left = timeLeft(rollout, nowMs);
  return [
    `${'phase'.padEnd(6)} ${rolloutPhase(rollout)}`,
    `${'ready'.padEnd(6)} ${bar(ready, scale, minimum)} ${ready} of ${desired}, minimum ${minimum}`,
    `${'new'.padEnd(6)} ${bar(updatedReady, scale)} ${updatedReady} of ${desired} ready${startingText(counts)}`,
    `${'old'.padEnd(6)} ${bar(old, scale)} ${old}`,
    [rollout?.reason ?? '', left === '' ? '' : `(${left} left)`]
      .filter((part) => part !== '')
      .join(' '),
  ];
}

/** `version 2, from version 1`; without the former one once that is history. */
export function versionsText({ status }: Workload): string {
  const { version = 0, fromVersion = 0 } = status?.rollout ?? {};
  const newest = version === 0 ? (status?.version ?? 0) : version;
  const settled = status?.rollout?.phase === RolloutStatus_Phase.COMPLETED;
  return `version ${newest}${settled || fromVersion === 0 || fromVersion === newest ? '' : `, from version ${fromVersion}`}`;
}

/** `[#####|....]`: the mark stands where the minimum is. */
function bar(count: number, scale: number, mark?: number): string {
  const filled = Math.round((Math.min(count, scale) * BAR_WIDTH) / scale);
  const cells = [...'#'.repeat(filled).padEnd(BAR_WIDTH, '.')];
  if (mark !== undefined && mark > 0)
    cells[Math.min(BAR_WIDTH, Math.round((mark * BAR_WIDTH) / scale)) - 1] = '|';
  return `[${cells.join('')}]`;
}

function startingText({ updated, updatedReady }: RolloutCounts): string {
  return updated > updatedReady ? `, ${updated - updatedReady} on the way` : '';
}

/**
 * How long the step, the pause or the deadline it is in still lasts: `4m30s`; empty when nothing
 * ends by time.
 */
function timeLeft(rollout: RolloutStatus | undefined, nowMs: number): string {
  if (rollout?.until === undefined || isOver(rollout)) return '';
  return formatSpan(Math.ceil((timestampMs(rollout.until) - nowMs) / 1000) * 1000);
}

function isOver({ phase }: RolloutStatus): boolean {
  return isRolledOut(phase) || phase === RolloutStatus_Phase.FAILED;
}

/** What made a rollout fail: the replica, how it ended, and the last it wrote. */
export function failureLines({
  replicaId,
  nodeId,
  exitCode,
  lastLines,
}: RolloutFailure): readonly string[] {
  if (replicaId === '') return [];
  const where = nodeId === '' ? '' : ` on ${nodeId}`;
  const how = exitCode === undefined ? '' : `, exit code ${exitCode}`;
  return [`failing replica: ${replicaId}${where}${how}`, ...lastLinesText(replicaId, lastLines)];
}

/** The last lines of a replica under a title; nothing without lines. */
export function lastLinesText(replicaId: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0
    ? []
    : [`last lines of ${replicaId}:`, ...lines.map((line) => `  ${oneLine(line)}`)];
}

/** More replicas than this seldom fail for different reasons. */
const MAX_FAILING = 3;

/** The last lines of replicas that fail. */
export function failingReplicas(replicas: readonly ReplicaStatus[]): readonly string[] {
  const failing = replicas.filter(({ ready, lastLines }) => !ready && lastLines.length > 0);
  return failing.slice(-MAX_FAILING).flatMap(({ id, lastLines }) => lastLinesText(id, lastLines));
}

/** The fields of a rollout, for `describe`. */
export function rolloutFields(
  workload: Workload,
  nowMs: number,
): readonly (readonly [string, string])[] {
  const { rollout } = workload.status ?? {};
  if (rollout === undefined) return [];
  const { strategy, startedAt, reason, failedNew, failure } = rollout;
  return [
    ['Phase', rolloutPhase(rollout)],
    ['Strategy', formatWord(Rollout_Strategy[strategy] ?? '')],
    ['Version', versionsText(workload)],
    ['Started', startedAt === undefined ? '' : `${formatAge(startedAt, nowMs)} ago`],
    ['Reason', reason === failure?.reason ? '' : reason],
    ['Time left', timeLeft(rollout, nowMs)],
    ['Failed new', failedNew === 0 ? '' : String(failedNew)],
    ['Failure', failure === undefined ? '' : `version ${failure.version}: ${failure.reason}`],
  ];
}

/** The kept versions, as a table. */
export function versionTable(
  versions: readonly VersionInfo[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    ['VERSION', 'ACTIVE', 'CREATED', 'CAUSE', 'SAME AS', 'RUNS'],
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
  );
}
