import type { CallOptions } from '@connectrpc/connect';
import { DrainStatus_Phase, WatchNodesResponse_Kind } from '@cloudless/api';
import type { DrainStatus, Node } from '@cloudless/api';
import { CliFailure, ExitCode } from '../failure.js';
import { resumedWatch } from '../follow-watch.js';
import { formatSpan } from '../output/human.js';
import type { Session } from '../session.js';
import { Deadline } from '../streams.js';
import { describeDrain } from '../views/drain-view.js';
import { DrainBoard } from './drain-board.js';
import { WAIT_TIMEOUT_MS } from './wait-workload.js';

/** A forced drain stops the remaining replicas at its deadline; their grace periods come on top. */
const AFTER_DEADLINE_MS = 60_000;

/**
 * Waits until all given nodes are drained and shows the progress. A failed drain does not end the
 * waiting for the others.
 * @param deadlineMs - Deadline of the drains. Without `--timeout` the wait lasts until the deadline
 *   plus a minute, and at least 10 minutes.
 * @throws {@link CliFailure} with exit code 1 when a drain fails, 4 when a drain is cancelled or a
 *   node removed, 6 when the time expires.
 */
export async function waitUntilDrained(
  session: Session,
  nodeIds: readonly string[],
  deadlineMs: number | undefined,
): Promise<readonly Node[]> {
  const { clock, signal } = session.io;
  const timeoutMs =
    session.settings.timeoutMs ?? Math.max(WAIT_TIMEOUT_MS, (deadlineMs ?? 0) + AFTER_DEADLINE_MS);
  const deadline = new Deadline(clock, signal, timeoutMs);
  const board = new DrainBoard(session, nodeIds);
  try {
    const ends = await Promise.allSettled(
      nodeIds.map((nodeId) => followDrain(session, nodeId, { deadline, timeoutMs, board })),
    );
    const failures = ends.flatMap((end): unknown[] =>
      end.status === 'rejected' ? [end.reason] : [],
    );
    if (failures.length > 0) throw together(failures);
    return ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
  } finally {
    deadline.cancel();
    board.done();
  }
}

interface Following {
  readonly deadline: Deadline;
  readonly timeoutMs: number;
  readonly board: DrainBoard;
}

async function followDrain(
  session: Session,
  nodeId: string,
  { deadline, timeoutMs, board }: Following,
): Promise<Node> {
  let left = 'no status received';
  try {
    for await (const node of statesOf(session, nodeId, deadline.signal)) {
      if (node === undefined)
        throw new CliFailure(ExitCode.conflict, `node ${nodeId} was removed while waiting`);
      const drain = node.status?.drain;
      if (drain !== undefined) {
        left = [describeDrain(drain), ...drain.waiting].join('\n  ');
        await board.show(nodeId, drain);
      }
      if (isOver(nodeId, drain, left)) return node;
    }
    throw new CliFailure(ExitCode.error, `the watch of node ${nodeId} ended unexpectedly`);
  } catch (reason) {
    if (!deadline.passed || reason instanceof CliFailure) throw reason;
    throw new CliFailure(
      ExitCode.timeout,
      `node ${nodeId} is not drained after ${formatSpan(timeoutMs)}: ${left}`,
    );
  }
}

function isOver(nodeId: string, drain: DrainStatus | undefined, left: string): boolean {
  switch (drain?.phase) {
    case DrainStatus_Phase.DRAINED:
      return true;
    case DrainStatus_Phase.DRAINING:
      return false;
    case DrainStatus_Phase.FAILED:
      throw new CliFailure(
        ExitCode.error,
        `the drain of node ${nodeId} failed because its deadline has passed: ${left}`,
      );
    default:
      throw new CliFailure(
        ExitCode.conflict,
        `the drain of node ${nodeId} was ended while waiting: ${left}`,
      );
  }
}

/** Yields every state of a node; undefined when the node is removed. */
async function* statesOf(
  session: Session,
  nodeId: string,
  signal: AbortSignal,
): AsyncGenerator<Node | undefined> {
  let present = false;
  const watch = {
    open: (afterRevision: bigint, options: CallOptions) =>
      session.client.watchNodes({ nodeId, afterRevision }, options),
    onAnew: () => void (present = false),
    hasAnswered: true,
  };
  for await (const { kind, node } of resumedWatch(session, watch, signal)) {
    if (kind === WatchNodesResponse_Kind.PUT && node !== undefined) {
      present = true;
      yield node;
    } else if (
      kind === WatchNodesResponse_Kind.DELETED ||
      (kind === WatchNodesResponse_Kind.SYNCED && !present)
    ) {
      yield undefined;
    }
  }
}

/**
 * Combines failures to one. An error that is not about a node, such as Ctrl-C, takes precedence.
 */
function together(failures: readonly unknown[]): unknown {
  const known = failures.filter((failure) => failure instanceof CliFailure);
  if (known.length < failures.length)
    return failures.find((failure) => !(failure instanceof CliFailure));
  const [first] = known.toSorted((a, b) => a.exitCode - b.exitCode);
  return known.length === 1
    ? first
    : new CliFailure(
        first?.exitCode ?? ExitCode.error,
        known.map(({ message }) => message).join('\n'),
      );
}
