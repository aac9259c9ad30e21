import type { CallOptions } from '@connectrpc/connect';
import { DrainStatus_Phase, WatchNodesResponse_Kind } from '@cloudless/api';
import type { DrainStatus, Node } from '@cloudless/api';
import { CliFailure, ExitCode } from '../call/failure.js';
import { resumeWatch } from '../call/resume-watch.js';
import { formatSpan } from '../output/human.js';
import type { CliSession } from '../call/cli-session.js';
import { Deadline } from '../call/reconnect.js';
import { describeDrain } from '../views/drain-view.js';
import { DrainProgress } from './drain-progress.js';
import { WAIT_TIMEOUT_MS } from './wait-workload.js';

/** Time for replicas to stop that a forced drain stops at its deadline. */
const DEADLINE_MARGIN_MS = 60_000;

/**
 * Waits until the drains of all nodes have ended, and shows the progress. A failed drain does not
 * end the wait for the other nodes.
 * @param deadlineMs - Time limit of the drains in milliseconds; undefined: none. Without
 *   `--timeout`, the wait lasts for this time plus a minute, and at least 10 minutes.
 * @returns The drained nodes, in the order of `nodeIds`.
 * @throws {@link CliFailure} with exit code 1 when a drain fails, 4 when a drain is cancelled or a
 *   node removed, 6 when the time expires. Several failures are combined.
 */
export async function waitUntilDrained(
  session: CliSession,
  nodeIds: readonly string[],
  deadlineMs: number | undefined,
): Promise<readonly Node[]> {
  const { clock, signal } = session.io;
  const timeoutMs =
    session.settings.timeoutMs ?? Math.max(WAIT_TIMEOUT_MS, (deadlineMs ?? 0) + DEADLINE_MARGIN_MS);
  const deadline = new Deadline(clock, signal, timeoutMs);
  const progress = new DrainProgress(session, nodeIds);
  try {
    const results = await Promise.allSettled(
      nodeIds.map((nodeId) => followDrain(session, nodeId, { deadline, timeoutMs, progress })),
    );
    const failures = results.flatMap((result): unknown[] =>
      result.status === 'rejected' ? [result.reason] : [],
    );
    if (failures.length > 0) throw combineFailures(failures);
    return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  } finally {
    deadline.cancel();
    progress.end();
  }
}

interface DrainWait {
  readonly deadline: Deadline;
  readonly timeoutMs: number;
  readonly progress: DrainProgress;
}

/** Waits until a node is drained and returns its last state. */
async function followDrain(
  session: CliSession,
  nodeId: string,
  { deadline, timeoutMs, progress }: DrainWait,
): Promise<Node> {
  let state = 'no status received';
  try {
    for await (const node of watchStates(session, nodeId, deadline.signal)) {
      if (node === undefined)
        throw new CliFailure(ExitCode.conflict, `node ${nodeId} was removed while waiting`);
      const drain = node.status?.drain;
      if (drain !== undefined) {
        state = [describeDrain(drain), ...drain.waiting].join('\n  ');
        await progress.showDrain(nodeId, drain);
      }
      if (isDrained(nodeId, drain, state)) return node;
    }
    throw new CliFailure(ExitCode.error, `the watch of node ${nodeId} ended unexpectedly`);
  } catch (reason) {
    if (!deadline.hasExpired || reason instanceof CliFailure) throw reason;
    throw new CliFailure(
      ExitCode.timeout,
      `node ${nodeId} was not drained within ${formatSpan(timeoutMs)}: ${state}`,
    );
  }
}

/**
 * Returns true when a node is drained, and false while the drain runs.
 * @param state - Description of the drain for the error message.
 * @throws {@link CliFailure} when the drain has failed or was cancelled.
 */
function isDrained(nodeId: string, drain: DrainStatus | undefined, state: string): boolean {
  switch (drain?.phase) {
    case DrainStatus_Phase.DRAINED:
      return true;
    case DrainStatus_Phase.DRAINING:
      return false;
    case DrainStatus_Phase.FAILED:
      throw new CliFailure(
        ExitCode.error,
        `the drain of node ${nodeId} failed because its deadline has passed: ${state}`,
      );
    default:
      throw new CliFailure(
        ExitCode.conflict,
        `the drain of node ${nodeId} was ended while waiting: ${state}`,
      );
  }
}

/** Yields every state of a node; undefined when the node is removed. */
async function* watchStates(
  session: CliSession,
  nodeId: string,
  signal: AbortSignal,
): AsyncGenerator<Node | undefined> {
  let exists = false;
  const watch = {
    open: (afterRevision: bigint, options: CallOptions) =>
      session.client.watchNodes({ nodeId, afterRevision }, options),
    onRestart: () => void (exists = false),
    hasAnswered: true, // the coordinator has accepted the drain
  };
  for await (const { kind, node } of resumeWatch(session, watch, signal)) {
    if (kind === WatchNodesResponse_Kind.PUT && node !== undefined) {
      exists = true;
      yield node;
    } else if (
      kind === WatchNodesResponse_Kind.DELETED ||
      (kind === WatchNodesResponse_Kind.SYNCED && !exists)
    ) {
      yield undefined;
    }
  }
}

/**
 * Combines failures to one error with the lowest exit code. An error that is not about a node, such
 * as Ctrl-C, takes precedence.
 */
function combineFailures(failures: readonly unknown[]): unknown {
  const nodeFailures = failures.filter((failure) => failure instanceof CliFailure);
  if (nodeFailures.length < failures.length)
    return failures.find((failure) => !(failure instanceof CliFailure));
  const [first] = nodeFailures.toSorted((a, b) => a.exitCode - b.exitCode);
  return nodeFailures.length === 1
    ? first
    : new CliFailure(
        first?.exitCode ?? ExitCode.error,
        nodeFailures.map(({ message }) => message).join('\n'),
      );
}
