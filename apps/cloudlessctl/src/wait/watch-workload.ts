import type { CallOptions } from '@connectrpc/connect';
import { WatchWorkloadsResponse_Kind } from '@cloudless/api';
import type { ReplicaStatus, Workload } from '@cloudless/api';
import { CliFailure, ExitCode } from '../failure.js';
import { resumedWatch } from '../follow-watch.js';
import { labelOf } from '../names.js';
import { formatSpan } from '../output/human.js';
import type { Session } from '../session.js';
import { Deadline } from '../streams.js';
import { Progress } from './progress.js';

/** What to watch, for how long, and what to look for. */
export interface WorkloadWatch<Result> {
  /** Its uid counts: another workload of that name is not it. */
  readonly subject: Workload;
  /** Without it there is no end but that of the watch. */
  readonly timeoutMs: number | undefined;
  /** What to tell when the time is over. */
  onTimeout(after: string): CliFailure;
  /**
   * Looks at a state of the workload, `undefined` when it is gone.
   * @param left - Replicas of a workload that is gone, as the watch showed them; undefined when it
   *   was gone before the watch began.
   * @returns The result that ends the watch; undefined to go on.
   */
  look(
    workload: Workload | undefined,
    progress: Progress,
    left: readonly ReplicaStatus[] | undefined,
  ): Promise<Result | undefined>;
}

/** Looks at every state of a workload until one gives a result. */
export async function watchWorkload<Result>(
  session: Session,
  watch: WorkloadWatch<Result>,
): Promise<Result> {
  const { clock, signal } = session.io;
  const { subject, timeoutMs } = watch;
  const deadline = new Deadline(clock, signal, timeoutMs);
  const progress = new Progress(session);
  try {
    for await (const { workload, left } of statesOf(session, subject, deadline.signal)) {
      const result = await watch.look(workload, progress, left);
      if (result !== undefined) return result;
    }
    throw new CliFailure(ExitCode.error, `${labelOf(subject)} cannot be watched any more`);
  } catch (reason) {
    if (deadline.passed && !(reason instanceof CliFailure))
      throw watch.onTimeout(formatSpan(timeoutMs ?? 0));
    throw reason;
  } finally {
    deadline.cancel();
    progress.done();
  }
}

interface Seen {
  readonly workload: Workload | undefined;
  readonly left?: readonly ReplicaStatus[];
}

async function* statesOf(
  session: Session,
  { namespace, name, uid }: Workload,
  signal: AbortSignal,
): AsyncGenerator<Seen> {
  let present = false;
  const watch = {
    open: (afterRevision: bigint, options: CallOptions) =>
      session.client.watchWorkloads({ namespace, name, afterRevision }, options),
    onAnew: () => void (present = false),
    hasAnswered: true, // it told what to watch
  };
  for await (const { kind, workload } of resumedWatch(session, watch, signal)) {
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
