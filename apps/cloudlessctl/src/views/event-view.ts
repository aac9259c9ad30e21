import { Event_Severity } from '@cloudless/api';
import type { Event } from '@cloudless/api';
import { formatAge, formatTime, formatWord } from '../output/human.js';
import { toneOf } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable, oneLine } from '../output/table.js';
import type { Cell } from '../output/table.js';

/** Events as a table, in the order given. */
export function eventTable(events: readonly Event[], nowMs: number, style: Style): string {
  return formatTable(
    ['AGE', 'SEVERITY', 'REASON', 'ABOUT', 'MESSAGE'],
    events.map((event) => [
      formatAge(event.time, nowMs),
      severityCell(event, style),
      event.reason,
      subjectOf(event),
      event.message,
    ]),
  );
}

/** One event as a line, for a stream that has no column widths yet. */
export function eventLine(event: Event, style: Style): string {
  const { text, paint } = severityCell(event, style);
  const severity = text.padEnd(7);
  return [formatTime(event.time), paint?.(severity) ?? severity, event.reason, subjectOf(event), oneLine(event.message)].join(
    '  ',
  );
}

/** What an event is about: `default/web`, `node web1`. */
export function subjectOf({ namespace, workload, nodeId, replicaId }: Event): string {
  if (workload !== '') return `${namespace}/${workload}`;
  if (nodeId !== '') return `node ${nodeId}`;
  return replicaId === '' ? 'cluster' : replicaId;
}

function severityCell({ severity }: Event, style: Style): Cell {
  const tone = severity === Event_Severity.ERROR ? 'bad' : severity === Event_Severity.WARNING ? 'busy' : 'quiet';
  return { text: formatWord(Event_Severity[severity] ?? ''), paint: toneOf(style, tone) };
}
