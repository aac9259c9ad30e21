import { Event_Severity } from '@cloudless/api';
import type { Event } from '@cloudless/api';
import { formatAge, formatWord } from '../output/human.js';
import { formatStyledTime, getToneColour } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable, toOneLine } from '../output/table.js';
import type { Cell, Column } from '../output/table.js';

/** Formats events as a table in the given order. */
export function formatEventTable(events: readonly Event[], nowMs: number, style: Style): string {
  return formatTable(
    EVENT_COLUMNS,
    events.map((event) => [
      shortenEventId(event.id),
      formatAge(event.time, nowMs),
      toSeverityCell(event, style),
      event.reason,
      formatSubject(event),
      formatMessage(event, style),
    ]),
    style,
  );
}

const EVENT_COLUMNS: readonly (Column | string)[] = [
  { header: 'ID', dropOrder: 3 },
  'AGE',
  { header: 'SEVERITY', dropOrder: 1 },
  { header: 'REASON', dropOrder: 2 },
  { header: 'ABOUT', fit: 'wrap', minWidth: 16 },
  { header: 'MESSAGE', fit: 'wrap' },
];

/** Formats an event as a line of a stream, without column widths. */
export function formatEventLine(event: Event, style: Style): string {
  const { text, paint } = toSeverityCell(event, style);
  const severity = text.padEnd(7); // `Warning` is the longest severity
  const parts = [
    formatStyledTime(event.time, style),
    paint?.(severity) ?? severity,
    event.reason,
    formatSubject(event),
    toOneLine(formatMessage(event, style)),
  ];
  return parts.join('  ');
}

/** Removes the leading zeros of the two parts of an event id, for tables: `2-17`. */
export function shortenEventId(id: string): string {
  return id.replace(/^0+(?=\d)/, '').replace(/-0+(?=\d)/, '-');
}

/** Restores the leading zeros of a shortened event id; other texts are returned unchanged. */
export function expandEventId(id: string): string {
  const parts = /^(\d{1,10})-(\d{1,10})$/.exec(id);
  return parts === null
    ? id
    : parts
        .slice(1)
        .map((part) => part.padStart(10, '0'))
        .join('-');
}

/** Returns the message with the number of repetitions. */
function formatMessage({ message, count, firstTime }: Event, style: Style): string {
  return count > 1
    ? `${message} (${count} times since ${formatStyledTime(firstTime, style)})`
    : message;
}

/**
 * Formats events as a tree: causes above, consequences below.
 * @param events - Sorted by id. An event whose cause is not in the list becomes a root.
 * @param markedId - Id of the event to mark.
 */
export function formatEventTree(events: readonly Event[], markedId: string, style: Style): string {
  const ids = new Set(events.map(({ id }) => id));
  const lines: string[] = [];
  // Adds an event and its consequences. `branch` starts the line of the event, `indent` the lines
  // below.
  const add = (event: Event, branch: string, indent: string): void => {
    const mark = event.id === markedId ? '>' : ' ';
    lines.push(`${mark} ${branch}${shortenEventId(event.id)}  ${formatEventLine(event, style)}`);
    const children = events.filter(({ causeId }) => causeId === event.id);
    const bar = children.length > 0 ? '|  ' : '   ';
    if (event.decision !== undefined)
      lines.push(`  ${indent}${bar}why: ${toOneLine(event.decision.why)} (${event.decision.id})`);
    if (event.requestId !== '' && !ids.has(event.causeId))
      lines.push(`  ${indent}${bar}request: ${toOneLine(event.requestId)}`);
    for (const [index, child] of children.entries()) {
      const isLast = index === children.length - 1;
      add(child, `${indent}${isLast ? '`- ' : '|- '}`, `${indent}${isLast ? '   ' : '|  '}`);
    }
  };
  for (const event of events) if (!ids.has(event.causeId)) add(event, '', '');
  return `${lines.join('\n')}\n`;
}

/** Formats the subject of an event: `default/web`, `node web1`, a replica id or `cluster`. */
export function formatSubject({ namespace, workload, nodeId, replicaId }: Event): string {
  if (workload !== '') return `${namespace}/${workload}`;
  if (nodeId !== '') return `node ${nodeId}`;
  return replicaId === '' ? 'cluster' : replicaId;
}

function toSeverityCell({ severity }: Event, style: Style): Cell {
  const tone =
    severity === Event_Severity.ERROR
      ? 'bad'
      : severity === Event_Severity.WARNING
        ? 'busy'
        : 'quiet';
  return { text: formatWord(Event_Severity[severity] ?? ''), paint: getToneColour(style, tone) };
}
