import { WorkloadStatus_Phase } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import { formatAge, formatLabels, formatWord } from '../output/human.js';
import { getToneColour } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell } from '../output/table.js';
import { formatRolloutPhase, getUnsettledReason } from './rollout-view.js';
import { summariseSpec } from './spec-view.js';

/**
 * Formats workloads as a table.
 * @param wide - True adds version, rollout, image with command, labels and uid, and shows the whole
 *   reason.
 */
export function formatWorkloadTable(
  workloads: readonly Workload[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    getWorkloadHeaders(wide),
    workloads.map((workload) => toWorkloadCells(workload, nowMs, style, wide)),
  );
}

/** Returns the headers of a workload table. */
export function getWorkloadHeaders(wide: boolean): readonly string[] {
  return [
    'NAMESPACE',
    'NAME',
    'STATUS',
    'READY',
    'UPDATED',
    'AGE',
    ...(wide ? ['VERSION', 'ROLLOUT', 'RUNS', 'LABELS', 'UID'] : []),
    'REASON',
  ];
}

/** Returns the table row of a workload. */
export function toWorkloadCells(
  workload: Workload,
  nowMs: number,
  style: Style,
  wide: boolean,
): readonly (Cell | string)[] {
  const { namespace, name, spec, status, uid, createdAt } = workload;
  const version = String(status?.version ?? 0);
  const reason = status?.reason || getUnsettledReason(status?.rollout);
  const extra = [
    version,
    formatRolloutPhase(status?.rollout),
    shorten(summariseSpec(spec)),
    formatLabels(spec?.labels ?? {}),
    uid,
  ];
  return [
    namespace,
    name,
    toPhaseCell(status?.phase ?? WorkloadStatus_Phase.PENDING, style),
    `${status?.readyReplicas ?? 0}/${status?.desiredReplicas ?? 0}`,
    String(status?.updatedReplicas ?? 0),
    formatAge(createdAt, nowMs),
    ...(wide ? extra : []),
    wide ? reason : shorten(reason),
  ];
}

function toPhaseCell(phase: WorkloadStatus_Phase, style: Style): Cell {
  const isGood = phase === WorkloadStatus_Phase.RUNNING || phase === WorkloadStatus_Phase.SUCCEEDED;
  const tone = phase === WorkloadStatus_Phase.FAILED ? 'bad' : isGood ? 'good' : 'busy';
  return { text: formatWord(WorkloadStatus_Phase[phase] ?? ''), paint: getToneColour(style, tone) };
}

/** Maximum length of a reason or command in a table. `describe` shows the whole text. */
const MAX_TEXT_LENGTH = 60;

function shorten(text: string): string {
  return text.length <= MAX_TEXT_LENGTH ? text : `${text.slice(0, MAX_TEXT_LENGTH - 1)}…`;
}
