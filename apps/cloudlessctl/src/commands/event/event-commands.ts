import type { Command } from 'commander';
import { Code, ConnectError } from '@connectrpc/connect';
import type { CallOptions } from '@connectrpc/connect';
import { EventSchema, Event_Category } from '@cloudless/api';
import type { Event, WatchEventsResponse } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { followWatch } from '../../call/resume-watch.js';
import { parseWorkloadName } from '../../names.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { parseWholeNumber } from '../../flags/spec-flags.js';
import {
  formatEventLine,
  formatEventTable,
  formatEventTree,
  expandEventId,
} from '../../views/event-view.js';
import { hasFlag, getTextOption } from '../options.js';

/** Number of events that are listed without `--limit`. */
const DEFAULT_LIMIT = 100;
/** Largest page of events that the API returns. One page is read. */
const MAX_LIMIT = 1000;
/** Number of events in the description of a workload or a node. */
const RECENT_EVENTS = 10;
/**
 * All categories except AUDIT. An audit record repeats the content of the other events of the same
 * change.
 */
const NON_AUDIT_CATEGORIES = [
  Event_Category.MEMBERSHIP,
  Event_Category.SCHEDULING,
  Event_Category.ROLLOUT,
  Event_Category.WORKLOAD,
  Event_Category.SECURITY,
  Event_Category.SYSTEM,
];

/** Selects events. A field that is empty or absent selects every value. */
interface EventFilter {
  readonly namespace?: string;
  readonly workload?: string;
  readonly nodeId?: string;
  readonly categories?: Event_Category[];
}

/** Adds `events`. */
export function addEventCommands(tree: CommandTree, parent: Command): void {
  addEventOptions(tree.addCommand(parent, 'events', 'list events', showEvents));
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
    .option('--audit', 'list audit records instead of other events')
    .option('--why <event>', 'show the causes and consequences of an event as a tree')
    .option('-w, --watch', 'watch for changes after the list');
}

/**
 * Returns the newest events that match the filter, oldest first. Returns no events when the
 * coordinator has no events service: a description is useful without events.
 */
export async function listRecentEvents(
  session: CliSession,
  filter: EventFilter,
): Promise<readonly Event[]> {
  try {
    const { events } = await session.client.listEvents(
      { categories: NON_AUDIT_CATEGORIES, ...filter, pageSize: RECENT_EVENTS, newestFirst: true },
      session.getCallOptions(),
    );
    return events.reverse();
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.Unimplemented) return [];
    throw reason;
  }
}

/**
 * Lists the newest events of all namespaces, or of one namespace when `--namespace` is given. With
 * `--watch`, new events follow the list.
 */
export async function showEvents(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const explainedId = getTextOption(invocation, 'why');
  if (explainedId !== undefined) return explainEvent(session, expandEventId(explainedId));
  const filter = readFilter(invocation);
  const limit = parseWholeNumber(
    '--limit',
    getTextOption(invocation, 'limit') ?? String(DEFAULT_LIMIT),
  );
  if (limit < 1 || limit > MAX_LIMIT)
    throw createUsageFailure(`--limit: expected 1 to ${MAX_LIMIT}, got ${limit}`);
  const watch = hasFlag(invocation, 'watch');
  const request = { ...filter, pageSize: limit, newestFirst: true };
  const { events, revision } = await session.client.listEvents(request, session.getCallOptions());
  events.reverse();
  if (watch) {
    for (const event of events) await printEvent(session, event);
    await watchEvents(session, filter, { id: events.at(-1)?.id ?? '', revision });
  } else if (session.isStructured) {
    await session.printValue({ events: events.map((event) => toMessageJson(EventSchema, event)) });
  } else if (events.length === 0) {
    await session.printNotice('no events');
  } else {
    await session.print(formatEventTable(events, session.nowMs, session.style));
  }
}

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

function readFilter(invocation: Invocation): EventFilter {
  const { settings } = invocation.session;
  const workload = getTextOption(invocation, 'workload');
  const nodeId = getTextOption(invocation, 'node');
  const workloadName =
    workload === undefined ? undefined : parseWorkloadName(workload, settings.namespace);
  const namespace = workloadName?.namespace ?? (settings.namespaceGiven ? settings.namespace : '');
  const categories = hasFlag(invocation, 'audit') ? [Event_Category.AUDIT] : NON_AUDIT_CATEGORIES;
  return { namespace, workload: workloadName?.name ?? '', nodeId: nodeId ?? '', categories };
}
