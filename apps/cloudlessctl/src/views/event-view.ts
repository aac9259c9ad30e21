import { Event_Severity } from '@cloudless/api';
import type { Event } from '@cloudless/api';
import { formatAge, formatTime, formatWord } from '../output/human.js';
import { toneOf } from '../output/style.js';
import type { Style } from '../output/style.js';
import { formatTable, oneLine } from '../output/table.js';
import type { Cell } from '../output/table.js';

/** Formats events as a table in the given order. */
export function eventTable(events: readonly Event[], nowMs: number, style: Style): string {
  return formatTable(
    ['ID', 'AGE', 'SEVERITY', 'REASON', 'ABOUT', 'MESSAGE'],
    events.map((event) => [
      shortEventId(event.id),
      formatAge(event.time, nowMs),
      severityCell(event, style),
      event.reason,
      subjectOf(event),
      messageOf(event),
    ]),
  );
}

/** Formats an event as a line of a stream, without column widths. */
export function eventLine(event: Event, style: Style): string {
  const { text, paint } = severityCell(event, style);
  const severity = text.padEnd(7);
  const parts = [
    formatTime(event.time),
    paint?.(severity) ?? severity,
    event.reason,
    subjectOf(event),
    oneLine(messageOf(event)),
  ];
  return parts.join('  ');
}

/** Removes the leading zeros of the two parts of an event id: `2-17`. */
export function shortEventId(id: string): string {
  return id.replace(/^0+(?=\d)/, '').replace(/-0+(?=\d)/, '-');
}

/** Restores the leading zeros of a shortened event id; other texts are returned unchanged. */
export function fullEventId(id: string): string {
  const parts = /^(\d{1,10})-(\d{1,10})$/.exec(id);
  return parts === null
    ? id
    : parts
        .slice(1)
        .map((part) => part.padStart(10, '0'))
        .join('-');
}

/** Returns the message with the number of repetitions. */
function messageOf({ message, count, firstTime }: Event): string {
  return count > 1 ? `${message} (${count} times since ${formatTime(firstTime)})` : message;
}

/**
 * Formats events as a tree: causes above, consequences below.
 * @param events - Sorted by id. An event whose cause is not in the list becomes a root.
 * @param asked - Id of the event to mark.
 */
export function eventTree(events: readonly Event[], asked: string, style: Style): string {
  const ids = new Set(events.map(({ id }) => id));
  const lines: string[] = [];
  const add = (event: Event, lead: string, indent: string): void => {
    const mark = event.id === asked ? '>' : ' ';
    lines.push(`${mark} ${lead}${shortEventId(event.id)}  ${eventLine(event, style)}`);
    const children = events.filter(({ causeId }) => causeId === event.id);
    const bar = children.length > 0 ? '|  ' : '   ';
    if (event.decision !== undefined)
      lines.push(`  ${indent}${bar}why: ${oneLine(event.decision.why)} (${event.decision.id})`);
    if (event.requestId !== '' && !ids.has(event.causeId))
      lines.push(`  ${indent}${bar}request: ${oneLine(event.requestId)}`);
    for (const [index, child] of children.entries()) {
      const isLast = index === children.length - 1;
      add(child, `${indent}${isLast ? '`- ' : '|- '}`, `${indent}${isLast ? '   ' : '|  '}`);
    }
  };
  for (const event of events) if (!ids.has(event.causeId)) add(event, '', '');
  return `${lines.join('\n')}\n`;
}

/** Formats the subject of an event: `default/web`, `node web1`. */
export function subjectOf({ namespace, workload, nodeId, replicaId }: Event): string {
  if (workload !== '') return `${namespace}/${workload}`;
  if (nodeId !== '') return `node ${nodeId}`;
  return replicaId === '' ? 'cluster' : replicaId;
}

function severityCell({ severity }: Event, style: Style): Cell {
  const tone =
    severity === Event_Severity.ERROR
      ? 'bad'
      : severity === Event_Severity.WARNING
        ? 'busy'
        : 'quiet';
  return { text: formatWord(Event_Severity[severity] ?? ''), paint: toneOf(style, tone) };
}
