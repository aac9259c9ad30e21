import { Option } from 'commander';
import type { Command } from 'commander';
import { LogEntrySchema, OutputStream } from '@cloudless/api';
import type { LogEntry, SkippedLines } from '@cloudless/api';
import { withValues } from '../../completion/value-kinds.js';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import { formatCount, formatBytes, formatSpan } from '../../output/human.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { addNotes } from '../../help/help-format.js';
import { parseWholeNumber } from '../../flags/spec-flags.js';
import { Deadline, isSlowReaderError, withReconnect } from '../../call/reconnect.js';
import { LogPrinter } from '../../views/log-printer.js';
import { hasFlag, getTextOption } from '../options.js';
import { parseSince } from '../since.js';
import { addSelectorOption } from '../workload/select-workloads.js';
import { findLogSources } from './log-sources.js';
import { mergeByArrival, mergeByTime } from './merge-logs.js';
import { ResumableLog } from './resumable-log.js';
import type { LogRequest } from './resumable-log.js';
import { describeUnreadable } from './unreadable-log.js';

/** Adds `logs`. */
export function addLogCommand(tree: CommandTree, parent: Command): void {
  const command = tree.addCommand(
    parent,
    'logs [targets...]',
    'print the logs of workloads, replicas or containers',
    showLogs,
  );
  addSelectorOption(command)
    .option('-f, --follow', 'follow the log')
    .option('--tail <lines>', 'number of newest lines of each replica')
    .option(
      '--since <time>',
      'only lines since a duration ago (10m) or since a time (2026-01-31T12:00:00Z)',
    )
    .option('--timestamps', 'print the time before each line; --utc does so in UTC')
    .addOption(
      withValues(new Option('--stream <stream>', 'only stdout or only stderr'), [
        'stdout',
        'stderr',
      ]),
    )
    .option('--previous', 'only the container that ran before the last restart of each replica')
    .option(
      '--max-replicas <number>',
      'largest number of replicas to read with several targets (default: 64)',
    );
  addNotes(
    command,
    'Where a replica was restarted, a line on standard error separates the two containers; -o json has the id of the container in each line. -l selects the workloads once: --follow does not add workloads that are created later.',
  );
}

/** Prints the logs until their ends, with `--follow` until the replicas end or Ctrl-C. */
async function showLogs(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { io, settings } = session;
  const request = createRequest(invocation);
  const { sources, prefixes } = await findLogSources(invocation);
  const { getUtcOffset } = session.style;
  const isUtc = getUtcOffset === undefined; // with --utc
  const printer = new LogPrinter({
    style: session.style,
    timestamps: isUtc || hasFlag(invocation, 'timestamps'),
    getOffsetMinutes: getUtcOffset ?? (() => 0),
    prefixes,
    write: (data) => session.print(data),
    writeMarker: (line) => session.printNotice(session.style.dim(line)),
  });
  const deadline = new Deadline(io.clock, io.signal, settings.timeoutMs);
  try {
    const logs = sources.map((source) => ({
      source,
      batches: openLog(session, { ...request, ...source.request }, deadline.signal),
    }));
    for await (const { source, entries } of request.follow === true
      ? mergeByArrival(logs)
      : mergeByTime(logs)) {
      const printed = entries.filter(
        ({ sequence, skipped, unreadable }) =>
          sequence > 0n ||
          (session.isStructured && (skipped !== undefined || unreadable !== undefined)),
      );
      for (const entry of entries) {
        if (entry.skipped !== undefined)
          await session.printNotice(describeSkipped(entry, entry.skipped));
        if (entry.unreadable !== undefined)
          await session.printNotice(describeUnreadable(entry, entry.unreadable, source.workload));
      }
      if (!session.isStructured) await printer.print(printed, source.workload);
      else if (printed.length > 0)
        await session.printItems(printed.map((entry) => toMessageJson(LogEntrySchema, entry)));
    }
  } catch (reason) {
    if (deadline.hasExpired)
      throw new CliFailure(
        ExitCode.timeout,
        `stopped following: --timeout expired after ${formatSpan(settings.timeoutMs ?? 0)}`,
      );
    throw reason;
  } finally {
    deadline.cancel();
    await printer.flush();
  }
}

/** Opens a log. A followed log is resumed after each loss of the connection. */
function openLog(
  session: CliSession,
  request: LogRequest,
  signal: AbortSignal,
): AsyncIterable<readonly LogEntry[]> {
  const log = new ResumableLog(session, request, signal);
  const open = (): AsyncIterable<readonly LogEntry[]> => log.open();
  if (request.follow !== true) return open();
  return withReconnect(open, {
    clock: session.io.clock,
    signal,
    endless: false,
    onLost: (notice) => session.printNotice(notice),
    isRetriable: isSlowReaderError,
  });
}

/**
 * Requested size of a message. The coordinator sends the available lines together up to this size.
 */
const BATCH_BYTES = 64 * 1024;

/** Returns the notice for lines that are missing in the log. */
function describeSkipped(
  { replicaId }: LogEntry,
  { firstSequence, lastSequence, bytes }: SkippedLines,
): string {
  const lines = formatCount(Number(lastSequence - firstSequence + 1n), 'line');
  const size = bytes === undefined ? '' : ` (${formatBytes(bytes)})`;
  return `${lines}${size} of ${replicaId} missing: log rotation removed them before they were read`;
}

/** Returns the request without the fields that select the log. */
function createRequest(invocation: Invocation): LogRequest {
  const tail = getTextOption(invocation, 'tail');
  const since = getTextOption(invocation, 'since');
  const [follow, previous] = [hasFlag(invocation, 'follow'), hasFlag(invocation, 'previous')];
  if (follow && previous)
    throw createUsageFailure(
      '--follow and --previous exclude each other: the earlier container has ended',
    );
  return {
    follow,
    previous,
    maxBatchBytes: BATCH_BYTES,
    ...(tail === undefined ? {} : { tailLines: parseWholeNumber('--tail', tail) }),
    ...(since === undefined ? {} : { since: parseSince(since, invocation.session.nowMs) }),
    streams: parseStream(getTextOption(invocation, 'stream')),
  };
}

function parseStream(text: string | undefined): OutputStream[] {
  if (text === undefined) return [];
  if (text === 'stdout') return [OutputStream.STDOUT];
  if (text === 'stderr') return [OutputStream.STDERR];
  throw createUsageFailure(`--stream: expected stdout or stderr, got ${JSON.stringify(text)}`);
}
