import { timestampMs } from '@bufbuild/protobuf/wkt';
import { DrainStatus_Phase } from '@cloudless/api';
import type { DrainStatus } from '@cloudless/api';
import { count, formatSpan, formatTime } from '../output/human.js';
import { toOneLine } from '../output/table.js';
import { formatFields } from './sections.js';

/** Formats the progress of a drain: `2 of 5 replicas left`, or `drained`. */
export function describeDrain({ phase, remaining, total }: DrainStatus): string {
  if (phase === DrainStatus_Phase.DRAINED) return 'drained';
  return `${remaining} of ${count(total, 'replica')} left`;
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
export function formatDrainSection(drain: DrainStatus | undefined, nowMs: number): string {
  if (drain === undefined) return '';
  const { phase, startedAt, deadline, force, remaining, total, waiting } = drain;
  const words: Partial<Record<DrainStatus_Phase, string>> = {
    [DrainStatus_Phase.DRAINING]: 'draining',
    [DrainStatus_Phase.DRAINED]: 'drained',
    [DrainStatus_Phase.FAILED]: 'failed: the deadline has passed, and no more replicas are moved',
  };
  const atEnd = force ? 'then the remaining replicas are stopped' : 'then the drain fails';
  const leftMs = deadline === undefined ? 0 : timestampMs(deadline) - nowMs;
  const isOpen = phase === DrainStatus_Phase.DRAINING && leftMs > 0;
  const end =
    deadline === undefined
      ? ''
      : `${formatTime(deadline)}${isOpen ? ` (in ${formatSpan(leftMs)}; ${atEnd})` : ''}`;
  const fields = formatFields([
    ['Phase', words[phase] ?? ''],
    ['Started', formatTime(startedAt)],
    ['Deadline', deadline === undefined && force ? 'none: all replicas are stopped at once' : end],
    ['Replicas', `${remaining} left of ${total}`],
  ]);
  return `${fields}${waiting.map((line) => `- ${toOneLine(line)}\n`).join('')}`;
}
