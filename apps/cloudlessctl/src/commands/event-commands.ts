import type { Command } from 'commander';
import { Code, ConnectError } from '@connectrpc/connect';
import { EventSchema } from '@cloudless/api';
import type { Event, WatchEventsResponse } from '@cloudless/api';
import type { CommandTree, Invocation } from '../command-tree.js';
import { CliFailure, ExitCode, usageFailure } from '../failure.js';
import { parseWorkloadName } from '../names.js';
import { messageJson } from '../session.js';
import type { Session } from '../session.js';
import { parseWholeNumber } from '../spec-flags.js';
import { Deadline, reconnecting } from '../streams.js';
import { eventLine, eventTable } from '../views/event-view.js';
import { formatSpan } from '../output/human.js';
import { flagOption, textOption } from './options.js';

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1000;
const DESCRIBED_EVENTS = 10;

/** Which events are meant; empty fields mean all. */
interface EventFilter {
  readonly namespace?: string;
  readonly workload?: string;
  readonly nodeId?: string;
}

/** Adds `events`. */
export function addEventCommands(tree: CommandTree, parent: Command): void {
  addEventOptions(tree.leaf(parent, 'events', 'what happened in the cluster', showEvents));
}

/** The options of a list of events. */
export function addEventOptions(command: Command): Command {
  return command
    .option('--workload <name>', 'only of this workload')
    .option('--node <node>', 'only of this node')
    .option('--limit <number>', `the newest so many, at most ${MAX_LIMIT}`, String(DEFAULT_LIMIT))
    .option('-w, --watch', 'go on with new events');
}

/** The newest events about something, oldest first; none when they cannot be had, because what they describe is what matters. */
export async function recentEvents(session: Session, filter: EventFilter): Promise<readonly Event[]> {
  try {
    const { events } = await session.client.listEvents(
      { ...filter, pageSize: DESCRIBED_EVENTS, newestFirst: true },
      session.callOptions(),
    );
    return events.reverse();
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.Unimplemented) return [];
    throw reason;
  }
}

/** Lists the newest events, of all namespaces unless one is asked for, and goes on with `--watch`. */
export async function showEvents(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const filter = filterOf(invocation);
  const limit = parseWholeNumber('--limit', textOption(invocation, 'limit') ?? String(DEFAULT_LIMIT));
  if (limit < 1 || limit > MAX_LIMIT) throw usageFailure(`--limit: expected 1 to ${MAX_LIMIT}, got ${limit}`);
  const watch = flagOption(invocation, 'watch');
  const { events } = await session.client.listEvents({ ...filter, pageSize: limit, newestFirst: true }, session.callOptions());
  events.reverse();
  if (watch) {
    for (const event of events) await printEvent(session, event);
    await watchEvents(session, filter, events.at(-1)?.id ?? '');
  } else if (session.structured) {
    await session.printValue({ events: events.map((event) => messageJson(EventSchema, event)) });
  } else if (events.length === 0) {
    await session.note('no events');
  } else {
    await session.print(eventTable(events, session.nowMs, session.style));
  }
}

async function watchEvents(session: Session, filter: EventFilter, after: string): Promise<void> {
  const { clock, signal } = session.io;
  const { timeoutMs } = session.settings;
  const deadline = new Deadline(clock, signal, timeoutMs);
  let afterId = after;
  const onLost = (reason: string): Promise<void> => session.note(`the connection was lost (${reason}), connecting again`);
  const open = (): AsyncIterable<WatchEventsResponse> =>
    session.client.watchEvents({ ...filter, afterId }, session.streamOptions(deadline.signal));
  try {
    for await (const { event } of reconnecting(open, { clock, signal: deadline.signal, endless: true, onLost })) {
      if (event === undefined) continue;
      afterId = event.id;
      await printEvent(session, event);
    }
  } catch (reason) {
    if (deadline.passed) throw new CliFailure(ExitCode.timeout, `watched for ${formatSpan(timeoutMs ?? 0)}`);
    throw reason;
  } finally {
    deadline.cancel();
  }
}

function printEvent(session: Session, event: Event): Promise<void> {
  return session.structured
    ? session.printItem(messageJson(EventSchema, event))
    : session.print(`${eventLine(event, session.style)}\n`);
}

function filterOf(invocation: Invocation): EventFilter {
  const { settings } = invocation.session;
  const workload = textOption(invocation, 'workload');
  const nodeId = textOption(invocation, 'node');
  const named = workload === undefined ? undefined : parseWorkloadName(workload, settings.namespace);
  const namespace = named?.namespace ?? (settings.namespaceGiven ? settings.namespace : '');
  return { namespace, workload: named?.name ?? '', nodeId: nodeId ?? '' };
}
