import { timestampMs } from '@bufbuild/protobuf/wkt';
import { DrainStatus_Phase } from '@cloudless/api';
import type { DrainStatus } from '@cloudless/api';
import { formatCount, formatSpan } from '../output/human.js';
import { formatStyledTime } from '../output/style.js';
import type { Style } from '../output/style.js';
import { toOneLine } from '../output/table.js';
import { formatFields } from './sections.js';

/** Formats the progress of a drain for a message: `2 of 5 replicas left`, or `drained`. */
export function describeDrain({ phase, remaining, total }: DrainStatus): string {
  if (phase === DrainStatus_Phase.DRAINED) return 'drained';
  return `${remaining} of ${formatCount(total, 'replica')} left`;
}

/**
 * Returns the drain status for a table column: `Draining(2/5)`, `Drained`, `DrainFailed`; undefined
 * without a drain.
 */
export function formatDrainStatus(drain: DrainStatus | undefined): string | undefined {
  switch (drain?.phase) {
    case DrainStatus_Phase.DRAINING:
      return `Draining(${drain.remaining}/${drain.total})`;
    case DrainStatus_Phase.DRAINED:
      return 'Drained';
    case DrainStatus_Phase.FAILED:
      return 'DrainFailed';
    default:
      return undefined;
  }
}

/** Formats the drain section of a node description; empty without a drain. */
export function formatDrainSection(
  drain: DrainStatus | undefined,
  nowMs: number,
  style: Style,
): string {
  if (drain === undefined) return '';
  const { phase, startedAt, deadline, force, remaining, total, waiting } = drain;
  const phaseTexts: Partial<Record<DrainStatus_Phase, string>> = {
    [DrainStatus_Phase.DRAINING]: 'draining',
    [DrainStatus_Phase.DRAINED]: 'drained',
    [DrainStatus_Phase.FAILED]: 'failed: the deadline has passed, and no more replicas are moved',
  };
  const consequence = force ? 'then the remaining replicas are stopped' : 'then the drain fails';
  const leftMs = deadline === undefined ? 0 : timestampMs(deadline) - nowMs;
  const isRunning = phase === DrainStatus_Phase.DRAINING && leftMs > 0;
  const deadlineText =
    deadline === undefined
      ? ''
      : `${formatStyledTime(deadline, style)}${isRunning ? ` (in ${formatSpan(leftMs)}; ${consequence})` : ''}`;
  const fields = formatFields([
    ['Phase', phaseTexts[phase] ?? ''],
    ['Started', formatStyledTime(startedAt, style)],
    [
      'Deadline',
      deadline === undefined && force ? 'none: all replicas are stopped at once' : deadlineText,
    ],
    ['Replicas', `${remaining} left of ${total}`],
  ]);
  return `${fields}${waiting.map((line) => `- ${toOneLine(line)}\n`).join('')}`;
}
