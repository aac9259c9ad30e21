import { create } from '@bufbuild/protobuf';
import type { CallOptions } from '@connectrpc/connect';
import { StreamLogsRequestSchema, WatchWorkloadsResponse_Kind } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import { ReplicaStatus_Phase } from '@cloudless/api';
import { CliFailure, ExitCode } from '../failure.js';
import { resumedWatch } from '../follow-watch.js';
import { count, formatSpan } from '../output/human.js';
import { oneLine } from '../output/table.js';
import type { Session } from '../session.js';
import { Deadline } from '../streams.js';
import { describeReplicas, judgeWorkload } from './judge-workload.js';
import type { WorkloadProgress } from './judge-workload.js';
import { Progress } from './progress.js';

/** How long `--wait` waits without `--timeout`: as long as a rollout may go without progress. */
export const WAIT_TIMEOUT_MS = 10 * 60_000;

const MAX_REPLICA_LINES = 12;
const LAST_LOG_LINES = 10;
const LAST_LOG_TIMEOUT_MS = 3_000;

/**
 * Waits until the workload is what `wanted` asks for, showing progress.
 * @param wanted - As the coordinator answered: uid and generation count.
 * @returns The workload as it is then.
 * @throws {@link CliFailure} of exit code 4 when it is deleted meanwhile, 6 when the time is over, 7 when it is and replicas
 *   have no node, 8 when the rollout fails.
 */
export async function waitUntilSettled(session: Session, wanted: Workload): Promise<Workload> {
  const label = labelOf(wanted);
  let last: WorkloadProgress = { kind: 'waiting', text: 'nothing was heard of it', unplaced: false };
  const onTimeout = (after: string): CliFailure => {
    const unplaced = last.kind === 'waiting' && last.unplaced;
    return new CliFailure(
      unplaced ? ExitCode.noCapacity : ExitCode.timeout,
      `${label} is not there after ${after}: ${last.text}`,
    );
  };
  return watchWorkload(session, wanted, onTimeout, async (workload, progress) => {
    if (workload === undefined) throw new CliFailure(ExitCode.conflict, `${label} was deleted meanwhile`);
    last = judgeWorkload(workload, wanted.generation);
    await progress.show(`${label}: ${oneLine(last.text)}`, describeReplicas(workload, MAX_REPLICA_LINES));
    if (last.kind === 'failed')
      throw await withLastLogs(session, workload, new CliFailure(last.exitCode, `${label}: ${last.text}`));
    return last.kind === 'done' ? workload : undefined;
  });
}

/** Waits until the workload, which is being deleted, is gone. */
export async function waitUntilDeleted(session: Session, deleted: Workload): Promise<void> {
  const label = labelOf(deleted);
  let left = '';
  const onTimeout = (after: string): CliFailure => new CliFailure(ExitCode.timeout, `${label} is not gone after ${after}${left}`);
  await watchWorkload(session, deleted, onTimeout, async (workload, progress) => {
    if (workload === undefined) {
      await progress.show(`${label}: deleted`);
      return deleted;
    }
    const { totalReplicas = 0, reason = '' } = workload.status ?? {};
    left = `: ${count(totalReplicas, 'replica')} left${reason === '' ? '' : `, ${reason}`}`;
    await progress.show(`${label}: ${count(totalReplicas, 'replica')} left`, describeReplicas(workload, MAX_REPLICA_LINES));
    return undefined;
  });
}

/** Looks at every state of the workload with the uid of `subject` (`undefined`: gone) until `look` gives something back. */
async function watchWorkload(
  session: Session,
  subject: Workload,
  onTimeout: (after: string) => CliFailure,
  look: (workload: Workload | undefined, progress: Progress) => Promise<Workload | undefined>,
): Promise<Workload> {
  const { clock, signal } = session.io;
  const timeoutMs = session.settings.timeoutMs ?? WAIT_TIMEOUT_MS;
  const deadline = new Deadline(clock, signal, timeoutMs);
  const progress = new Progress(session);
  try {
    for await (const { workload } of statesOf(session, subject, deadline.signal)) {
      const result = await look(workload, progress);
      if (result !== undefined) return result;
    }
    throw new CliFailure(ExitCode.error, `${labelOf(subject)} cannot be watched any more`);
  } catch (reason) {
    if (deadline.passed && !(reason instanceof CliFailure)) throw onTimeout(formatSpan(timeoutMs));
    throw reason;
  } finally {
    deadline.cancel();
    progress.done();
  }
}

interface Seen {
  readonly workload: Workload | undefined;
}

async function* statesOf(session: Session, { namespace, name, uid }: Workload, signal: AbortSignal): AsyncGenerator<Seen> {
  let present = false;
  const watch = {
    open: (afterRevision: bigint, options: CallOptions) =>
      session.client.watchWorkloads({ namespace, name, afterRevision }, options),
    onAnew: () => void (present = false),
  };
  for await (const { kind, workload } of resumedWatch(session, watch, signal)) {
    if (kind === WatchWorkloadsResponse_Kind.PUT && workload?.uid === uid) {
      present = true;
      yield { workload };
    } else if (kind === WatchWorkloadsResponse_Kind.DELETED && workload?.uid === uid) {
      yield { workload: undefined };
    } else if (kind === WatchWorkloadsResponse_Kind.SYNCED && !present) {
      yield { workload: undefined };
    }
  }
}

/** Adds the last lines of a replica that is not ready: nearly always they say why. */
async function withLastLogs(session: Session, workload: Workload, failure: CliFailure): Promise<CliFailure> {
  const version = workload.status?.version;
  const suspects = (workload.status?.replicas ?? []).filter((replica) => replica.version === version && !replica.ready);
  const culprit =
    suspects.find(({ phase }) => phase === ReplicaStatus_Phase.FAILED) ??
    suspects.find(({ restarts }) => restarts > 0) ??
    suspects[0];
  if (culprit === undefined || culprit.nodeId === '') return failure;
  const lines: string[] = [];
  try {
    const request = create(StreamLogsRequestSchema, { replicaId: culprit.id, tailLines: LAST_LOG_LINES });
    for await (const entry of session.client.streamLogs(request, session.callOptions(LAST_LOG_TIMEOUT_MS))) {
      if (entry.sequence > 0n) lines.push(`  ${entry.line}`);
    }
  } catch {
    // The failure itself is what matters; without its log it is told all the same.
  }
  if (lines.length === 0) return failure;
  return new CliFailure(failure.exitCode, [failure.message, `last lines of ${culprit.id}:`, ...lines].join('\n'), {
    cause: failure,
  });
}

/** `workload default/web`. */
export function labelOf({ namespace, name }: { readonly namespace: string; readonly name: string }): string {
  return `workload ${namespace}/${name}`;
}
