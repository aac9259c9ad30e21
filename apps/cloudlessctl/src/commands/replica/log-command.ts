import type { Command } from 'commander';
import { fromJson } from '@bufbuild/protobuf';
import { TimestampSchema, timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { LogEntrySchema, OutputStream } from '@cloudless/api';
import type { LogEntry, SkippedLines } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import { parseReplicaTarget, toTargetFields } from '../../names.js';
import type { ReplicaTarget } from '../../names.js';
import { formatCount, formatBytes, formatSpan } from '../../output/human.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { parseDuration } from '../../quantity.js';
import { parseWholeNumber } from '../../flags/spec-flags.js';
import { Deadline, isSlowReaderError, withReconnect } from '../../call/reconnect.js';
import { LogPrinter } from '../../views/log-printer.js';
import { hasFlag, requireOperand, getTextOption } from '../options.js';
import { ResumableLog } from './resumable-log.js';
import type { LogRequest } from './resumable-log.js';

/** Adds `logs`. */
export function addLogCommand(tree: CommandTree, parent: Command): void {
  tree
    .addCommand(
      parent,
      'logs <target>',
      'print the log of a workload, replica or container',
      showLogs,
    )
    .option('-f, --follow', 'follow the log')
    .option('--tail <lines>', 'number of newest lines of each replica')
    .option(
      '--since <time>',
      'only lines since a duration ago (10m) or since a time (2026-01-31T12:00:00Z)',
    )
    .option('--timestamps', 'print the time before each line')
    .option('--stream <stream>', 'only stdout or only stderr');
}

/** Prints the log until its end, with `--follow` until the replicas end or Ctrl-C. */
async function showLogs(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { io, settings } = session;
  const target = parseReplicaTarget(requireOperand(invocation, 0, 'target'), settings.namespace);
  const request = createRequest(invocation, target);
  const printer = new LogPrinter({
    style: session.style,
    timestamps: hasFlag(invocation, 'timestamps'),
    prefixes: await needsPrefixes(session, target),
    write: (data) => session.print(data),
    ...(target.kind === 'workload' ? { workload: target.workload.name } : {}),
  });
  const deadline = new Deadline(io.clock, io.signal, settings.timeoutMs);
  const onLost = (reason: string): Promise<void> =>
    session.printNotice(`connection lost (${reason}), reconnecting`);
  const log = new ResumableLog(session, request, deadline.signal);
  const open = (): AsyncIterable<readonly LogEntry[]> => log.open();
  try {
    const follow = request.follow === true;
    const entries = follow
      ? withReconnect(open, {
          clock: io.clock,
          signal: deadline.signal,
          endless: false,
          onLost,
          isRetriable: isSlowReaderError,
        })
      : open();
    for await (const batch of entries) {
      const printed = batch.filter(
        ({ sequence, skipped }) => sequence > 0n || (session.isStructured && skipped !== undefined),
      );
      for (const entry of batch)
        if (entry.skipped !== undefined)
          await session.printNotice(describeSkipped(entry, entry.skipped));
      if (!session.isStructured) await printer.print(printed);
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

function createRequest(invocation: Invocation, target: ReplicaTarget): LogRequest {
  const tail = getTextOption(invocation, 'tail');
  const since = getTextOption(invocation, 'since');
  return {
    ...toTargetFields(target),
    follow: hasFlag(invocation, 'follow'),
    maxBatchBytes: BATCH_BYTES,
    ...(tail === undefined ? {} : { tailLines: parseWholeNumber('--tail', tail) }),
    ...(since === undefined ? {} : { since: parseSince(since, invocation.session.nowMs) }),
    streams: parseStream(getTextOption(invocation, 'stream')),
  };
}

/**
 * Parses the value of `--since`: a duration before now, or an RFC 3339 time.
 * @param nowMs - Wall-clock time in milliseconds since the epoch.
 */
function parseSince(text: string, nowMs: number): Timestamp {
  const duration = parseDuration(text);
  if ('value' in duration && duration.value >= 0n)
    return timestampFromMs(nowMs - Number(duration.value / 1_000_000n));
  try {
    return fromJson(TimestampSchema, text);
  } catch (reason) {
    throw new CliFailure(
      ExitCode.usage,
      `--since: expected a duration such as 10m or a time such as 2026-01-31T12:00:00Z, got ${JSON.stringify(text)}`,
      {
        cause: reason,
      },
    );
  }
}

function parseStream(text: string | undefined): OutputStream[] {
  if (text === undefined) return [];
  if (text === 'stdout') return [OutputStream.STDOUT];
  if (text === 'stderr') return [OutputStream.STDERR];
  throw createUsageFailure(`--stream: expected stdout or stderr, got ${JSON.stringify(text)}`);
}

/**
 * Returns true when lines are prefixed with their replica: when the workload has several replicas.
 */
async function needsPrefixes(session: CliSession, target: ReplicaTarget): Promise<boolean> {
  if (target.kind !== 'workload' || session.isStructured) return false;
  const { status } = await session.client.getWorkload(target.workload, session.getCallOptions());
  return Math.max(status?.desiredReplicas ?? 0, status?.totalReplicas ?? 0) > 1;
}
