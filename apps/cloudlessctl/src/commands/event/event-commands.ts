import { Option } from 'commander';
import type { Command } from 'commander';
import { Code, ConnectError } from '@connectrpc/connect';
import type { CallOptions } from '@connectrpc/connect';
import { EventSchema } from '@cloudless/api';
import type { Event, WatchEventsResponse } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { withValues } from '../../completion/value-kinds.js';
import { createUsageFailure } from '../../call/failure.js';
import { followWatch } from '../../call/resume-watch.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { collectValue } from '../../flags/flag-values.js';
import { parseWholeNumber } from '../../flags/spec-flags.js';
import {
  formatEventLine,
  formatEventTable,
  formatEventTree,
  expandEventId,
} from '../../views/event-view.js';
import { addOutputOptions, printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { hasFlag, getTextOption } from '../options.js';
import { parseSince } from '../since.js';
import { readEventFilter, requireSubjects } from './event-filter.js';
import type { EventFilter } from './event-filter.js';

/** Number of events that are listed without `--limit`. */
const DEFAULT_LIMIT = 100;
/** Largest page of events that the API returns. One page is read. */
const MAX_LIMIT = 1000;

/** Adds `events`. */
export function addEventCommands(tree: CommandTree, parent: Command): void {
  addOutputOptions(
    addEventOptions(tree.addCommand(parent, 'events', 'list events', showEvents)).option(
      '-A, --all-namespaces',
      'include all namespaces; the default without -n',
    ),
  );
}

/** Adds the options that select events. */
export function addEventOptions(command: Command): Command {
  return command
    .option('--workload <workload>', 'only for this workload')
    .option('--node <node>', 'only for this node')
    .option(
      '--limit <number>',
      `number of newest events, at most ${MAX_LIMIT} (default: ${DEFAULT_LIMIT})`,
    )
    .option('--since <time>', 'only events since a duration ago (10m) or since a time')
    .addOption(
      withValues(new Option('--type <type>', 'only of these types').argParser(collectValue), [
        'Membership',
        'Scheduling',
        'Rollout',
        'Workload',
        'Security',
        'System',
        'Audit',
      ]),
    )
    .option('--reason <text>', 'only with these reasons, for example ReplicaPlaced', collectValue)
    .addOption(
      withValues(
        new Option('--severity <severity>', 'only of these severities').argParser(collectValue),
        ['Info', 'Warning', 'Error'],
      ),
    )
    .option('--audit', 'list audit records instead of other events')
    .option('--why <event>', 'show the causes and consequences of an event as a tree')
    .option('-w, --watch', 'watch for changes after the list');
}

/**
 * Lists the newest events of all namespaces, or of one namespace when `--namespace` is given. With
 * `--watch`, new events follow the list.
 */
export async function showEvents(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const explainedId = getTextOption(invocation, 'why');
  if (explainedId !== undefined) return explainEvent(session, expandEventId(explainedId));
  const filter = readEventFilter(invocation);
  const limit = parseWholeNumber(
    '--limit',
    getTextOption(invocation, 'limit') ?? String(DEFAULT_LIMIT),
  );
  if (limit < 1 || limit > MAX_LIMIT)
    throw createUsageFailure(`--limit: expected 1 to ${MAX_LIMIT}, got ${limit}`);
  const sinceText = getTextOption(invocation, 'since');
  const since = sinceText === undefined ? {} : { since: parseSince(sinceText, session.nowMs) };
  const request = { ...filter, ...since, pageSize: limit, newestFirst: true };
  const { events, revision } = await session.client.listEvents(request, session.getCallOptions());
  events.reverse();
  if (events.length === 0) await requireSubjects(invocation, filter);
  if (hasFlag(invocation, 'watch')) {
    for (const event of events) await printEvent(session, event);
    await watchEvents(session, filter, { id: events.at(-1)?.id ?? '', revision });
  } else await printObjects(invocation, EVENT_KIND, events, 'no events');
}

/** How events are listed. */
const EVENT_KIND: ObjectKind<Event> = {
  plural: 'events',
  fields: EventSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (event) => toMessageJson(EventSchema, event),
  formatTable: (events, { nowMs, style }) => formatEventTable(events, nowMs, style),
};

/** Prints the tree of the causes and consequences of an event. */
async function explainEvent(session: CliSession, id: string): Promise<void> {
  const { events } = await session.client.listEvents(
    { relatedTo: id, pageSize: MAX_LIMIT },
    session.getCallOptions(),
  );
  if (session.isStructured)
    await session.printValue({ events: events.map((event) => toMessageJson(EventSchema, event)) });
  else await session.print(formatEventTree(events, id, session.style));
}

/**
 * Prints new events until Ctrl-C.
 * @param from - Id of the newest printed event (empty when none was printed), and the revision of
 *   the printed list.
 */
async function watchEvents(
  session: CliSession,
  filter: EventFilter,
  from: { readonly id: string; readonly revision: bigint },
): Promise<void> {
  let afterId = from.id;
  const watch = {
    from: from.revision,
    open: (afterRevision: bigint, options: CallOptions) =>
      afterRevision > 0n
        ? session.client.watchEvents({ ...filter, afterRevision }, options)
        : openAfterId(options),
  };
  /**
   * Opens the watch after the last printed event. An event can still be stored when the history of
   * changes at its revision is already compacted.
   */
  async function* openAfterId(options: CallOptions): AsyncGenerator<WatchEventsResponse> {
    try {
      yield* session.client.watchEvents({ ...filter, afterId }, options);
    } catch (reason) {
      if (!(reason instanceof ConnectError) || reason.code !== Code.OutOfRange || afterId === '')
        throw reason;
      await session.printNotice(`events were missed: ${reason.rawMessage}`);
      yield* session.client.watchEvents(filter, options);
    }
  }
  await followWatch(session, watch, async ({ event }) => {
    if (event === undefined || event.id <= afterId) return;
    afterId = event.id;
    await printEvent(session, event);
  });
}

function printEvent(session: CliSession, event: Event): Promise<void> {
  return session.isStructured
    ? session.printItem(toMessageJson(EventSchema, event))
    : session.print(`${formatEventLine(event, session.style)}\n`);
}
