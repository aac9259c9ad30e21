import { RolloutStatus_Phase, WorkloadStatus_Phase } from '@cloudless/api';
import type { Workload, WorkloadStatus } from '@cloudless/api';
import { formatAge, formatLabels, formatWord } from '../output/human.js';
import { getToneColour } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import type { Cell, Column } from '../output/table.js';
import { formatRolloutPhase, getUnsettledReason } from './rollout-view.js';
import { summariseSpec } from './spec-view.js';

/**
 * Formats workloads as a table.
 * @param wide - True adds version, rollout, image with command, labels and uid.
 */
export function formatWorkloadTable(
  workloads: readonly Workload[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    getWorkloadColumns(wide),
    workloads.map((workload) => toWorkloadCells(workload, nowMs, style, wide)),
    style,
    { wide },
  );
}

/** Returns the columns of a workload table. */
export function getWorkloadColumns(wide: boolean): readonly (Column | string)[] {
  return [
    { header: 'NAMESPACE', dropOrder: 3 },
    'NAME',
    { header: 'STATUS', usualWidth: 'Terminating'.length },
    { header: 'READY', usualWidth: '10/10'.length },
    { header: 'UPDATED', dropOrder: 1 },
    { header: 'AGE', dropOrder: 2, usualWidth: '59m59s'.length },
    ...(wide ? WIDE_COLUMNS : []),
    { header: 'REASON', fit: 'wrap' },
  ];
}

const WIDE_COLUMNS: readonly (Column | string)[] = [
  'VERSION',
  'ROLLOUT',
  { header: 'RUNS', fit: 'shorten', minWidth: 16 },
  { header: 'LABELS', fit: 'wrap', minWidth: 16 },
  'UID',
];

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
    summariseSpec(spec),
    formatLabels(spec?.labels ?? {}),
    uid,
  ];
  return [
    namespace,
    name,
    toStatusCell(status, style),
    `${status?.readyReplicas ?? 0}/${status?.desiredReplicas ?? 0}`,
    String(status?.updatedReplicas ?? 0),
    formatAge(createdAt, nowMs),
    ...(wide ? extra : []),
    reason,
  ];
}

/** A failed rollout is shown although the replicas of the earlier version go on. */
function toStatusCell(status: WorkloadStatus | undefined, style: Style): Cell {
  const phase = status?.phase ?? WorkloadStatus_Phase.PENDING;
  const goesOn = phase === WorkloadStatus_Phase.RUNNING || phase === WorkloadStatus_Phase.UPDATING;
  if (goesOn && status?.rollout?.phase === RolloutStatus_Phase.FAILED)
    return { text: 'RolloutFailed', paint: getToneColour(style, 'bad') };
  return toPhaseCell(phase, style);
}

function toPhaseCell(phase: WorkloadStatus_Phase, style: Style): Cell {
  const isGood = phase === WorkloadStatus_Phase.RUNNING || phase === WorkloadStatus_Phase.SUCCEEDED;
  const tone = phase === WorkloadStatus_Phase.FAILED ? 'bad' : isGood ? 'good' : 'busy';
  return { text: formatWord(WorkloadStatus_Phase[phase] ?? ''), paint: getToneColour(style, tone) };
}
