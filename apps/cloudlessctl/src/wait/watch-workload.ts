import type { CallOptions } from '@connectrpc/connect';
import { WatchWorkloadsResponse_Kind } from '@cloudless/api';
import type { ReplicaStatus, Workload } from '@cloudless/api';
import { CliFailure, ExitCode } from '../call/failure.js';
import { resumeWatch } from '../call/resume-watch.js';
import { formatWorkloadName } from '../names.js';
import { formatSpan } from '../output/human.js';
import type { CliSession } from '../call/cli-session.js';
import { Deadline } from '../call/reconnect.js';
import { Progress } from './progress.js';

/** A workload to watch, a time limit, and the condition to wait for. */
export interface WorkloadWatch<Result> {
  /** The workload with this uid. A new workload of the same name is not matched. */
  readonly subject: Workload;
  /** Undefined: no time limit. */
  readonly timeoutMs: number | undefined;
  /** Creates the error for an expired time limit. */
  onTimeout(after: string): CliFailure;
  /**
   * Evaluates a state.
   * @param workload - Undefined when the workload is deleted.
   * @param left - Replicas of a deleted workload, from the watch; undefined when the workload was
   *   deleted before the watch started.
   * @returns The result that ends the watch; undefined to continue.
   */
  evaluate(
    workload: Workload | undefined,
    progress: Progress,
    left: readonly ReplicaStatus[] | undefined,
  ): Promise<Result | undefined>;
}

/** Watches a workload until `look` returns a result. */
export async function watchWorkload<Result>(
  session: CliSession,
  watch: WorkloadWatch<Result>,
): Promise<Result> {
  const { clock, signal } = session.io;
  const { subject, timeoutMs } = watch;
  const deadline = new Deadline(clock, signal, timeoutMs);
  const progress = new Progress(session);
  try {
    for await (const { workload, left } of watchStates(session, subject, deadline.signal)) {
      const result = await watch.evaluate(workload, progress, left);
      if (result !== undefined) return result;
    }
    throw new CliFailure(
      ExitCode.error,
      `the watch of ${formatWorkloadName(subject)} ended unexpectedly`,
    );
  } catch (reason) {
    if (deadline.hasExpired && !(reason instanceof CliFailure))
      throw watch.onTimeout(formatSpan(timeoutMs ?? 0));
    throw reason;
  } finally {
    deadline.cancel();
    progress.end();
  }
}

interface WorkloadState {
  readonly workload: Workload | undefined;
  readonly left?: readonly ReplicaStatus[];
}

async function* watchStates(
  session: CliSession,
  { namespace, name, uid }: Workload,
  signal: AbortSignal,
): AsyncGenerator<WorkloadState> {
  let present = false;
  const watch = {
    open: (afterRevision: bigint, options: CallOptions) =>
      session.client.watchWorkloads({ namespace, name, afterRevision }, options),
    onRestart: () => void (present = false),
    hasAnswered: true, // the coordinator returned the workload to watch
  };
  for await (const { kind, workload } of resumeWatch(session, watch, signal)) {
    if (kind === WatchWorkloadsResponse_Kind.PUT && workload?.uid === uid) {
      present = true;
      yield { workload };
    } else if (kind === WatchWorkloadsResponse_Kind.DELETED && workload?.uid === uid) {
      yield { workload: undefined, left: workload.status?.replicas ?? [] };
    } else if (kind === WatchWorkloadsResponse_Kind.SYNCED && !present) {
      yield { workload: undefined };
    }
  }
}
