import type { CallOptions } from '@connectrpc/connect';
import { WatchWorkloadsResponse_Kind } from '@cloudless/api';
import type { Workload, WorkloadStatus } from '@cloudless/api';
import { CliFailure, ExitCode } from '../call/failure.js';
import { resumeWatch } from '../call/resume-watch.js';
import { formatWorkloadName } from '../names.js';
import { formatSpan } from '../output/human.js';
import type { CliSession } from '../call/cli-session.js';
import { Deadline } from '../call/reconnect.js';
import { GateFigures } from './gate-figures.js';
import { Progress } from './progress.js';

/** Replicas of a workload that was deleted, of which an answer may omit some. */
export type RemainingReplicas = Pick<WorkloadStatus, 'replicas' | 'omittedReplicas'>;

/** A workload to watch, a time limit, and the condition to wait for. */
export interface WorkloadWatch<Result> {
  /** The workload to watch, found by its uid. A new workload of the same name is ignored. */
  readonly subject: Workload;
  /** Undefined: no time limit. */
  readonly timeoutMs: number | undefined;
  /** True: the states have no replicas. Default: false. */
  readonly omitReplicas?: boolean;
  /** Ends the watch with its reason when aborted. Default: none. */
  readonly abortSignal?: AbortSignal;
  /**
   * Creates the error for an expired time limit.
   * @param after - The time limit as text, for example `10m`.
   */
  onTimeout(after: string): CliFailure;
  /**
   * Evaluates a state.
   * @param workload - Undefined when the workload is deleted.
   * @param remaining - The last status of a deleted workload, with its remaining replicas;
   *   undefined when the workload exists, or was deleted before the watch started.
   * @returns The result that ends the watch; undefined to continue.
   */
  evaluate(
    workload: Workload | undefined,
    progress: Progress,
    remaining: RemainingReplicas | undefined,
  ): Promise<Result | undefined>;
}

/**
 * Watches a workload until `evaluate` returns a result. The watch survives broken connections.
 * @throws {@link CliFailure} of `onTimeout` when the time limit expires, and any error of
 *   `evaluate`.
 */
export async function watchWorkload<Result>(
  session: CliSession,
  watch: WorkloadWatch<Result>,
): Promise<Result> {
  const { clock, signal } = session.io;
  const { subject, timeoutMs } = watch;
  const deadline = new Deadline(clock, signal, timeoutMs);
  const progress = new Progress(session);
  const figures = new GateFigures(session);
  try {
    const ended =
      watch.abortSignal === undefined
        ? deadline.signal
        : AbortSignal.any([deadline.signal, watch.abortSignal]);
    for await (const { workload, remaining } of watchStates(session, watch, ended)) {
      if (progress.isRedrawn) figures.follow(workload);
      const result = await watch.evaluate(workload, progress, remaining);
      if (result !== undefined) return result;
    }
    throw new CliFailure(
      ExitCode.error,
      `the watch of ${formatWorkloadName(subject)} ended unexpectedly`,
    );
  } catch (reason) {
    if (watch.abortSignal?.aborted) throw watch.abortSignal.reason;
    if (deadline.hasExpired && !(reason instanceof CliFailure))
      throw watch.onTimeout(formatSpan(timeoutMs ?? 0));
    throw reason;
  } finally {
    deadline.cancel();
    figures.end();
    progress.end();
  }
}

/** A state of the workload; `workload` is undefined after the deletion. */
interface WorkloadState {
  readonly workload: Workload | undefined;
  readonly remaining?: RemainingReplicas;
}

/** Yields every state of the workload with this uid, and its deletion. */
async function* watchStates(
  session: CliSession,
  {
    subject: { namespace, name, uid },
    omitReplicas = false,
  }: Pick<WorkloadWatch<unknown>, 'subject' | 'omitReplicas'>,
  signal: AbortSignal,
): AsyncGenerator<WorkloadState> {
  let exists = false;
  const watch = {
    open: (afterRevision: bigint, options: CallOptions) =>
      session.client.watchWorkloads({ namespace, name, afterRevision, omitReplicas }, options),
    onRestart: () => void (exists = false),
    hasAnswered: true, // the coordinator returned the workload to watch
  };
  for await (const { kind, workload } of resumeWatch(session, watch, signal)) {
    if (kind === WatchWorkloadsResponse_Kind.PUT && workload?.uid === uid) {
      exists = true;
      yield { workload };
    } else if (kind === WatchWorkloadsResponse_Kind.DELETED && workload?.uid === uid) {
      const { replicas = [], omittedReplicas = 0 } = workload.status ?? {};
      yield { workload: undefined, remaining: { replicas, omittedReplicas } };
    } else if (kind === WatchWorkloadsResponse_Kind.SYNCED && !exists) {
      yield { workload: undefined };
    }
  }
}
