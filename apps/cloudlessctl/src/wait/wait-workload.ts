import { create } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase, StreamLogsRequestSchema } from '@cloudless/api';
import type { ReplicaStatus, Workload } from '@cloudless/api';
import { CliFailure, ExitCode } from '../failure.js';
import { labelOf } from '../names.js';
import { count } from '../output/human.js';
import { oneLine } from '../output/table.js';
import { promoteHint } from '../rollout-hints.js';
import type { Session } from '../session.js';
import { failureLines } from '../views/rollout-view.js';
import { describeReplicas, judgeWorkload } from './judge-workload.js';
import type { WorkloadProgress } from './judge-workload.js';
import { Milestones, tenths } from './rollout-counts.js';
import { watchWorkload } from './watch-workload.js';

export { labelOf };

/**
 * Time limit of `--wait` without `--timeout`; equal to the default progress deadline of a rollout.
 */
export const WAIT_TIMEOUT_MS = 10 * 60_000;

const MAX_REPLICA_LINES = 12;
const LAST_LOG_LINES = 10;
const LAST_LOG_TIMEOUT_MS = 3_000;

/**
 * Waits until a workload has reached a generation or waits for a promotion, and shows the progress.
 * @param wanted - The workload as the change returned it: uid, generation and version select what
 *   to wait for.
 * @returns The reached state.
 * @throws {@link CliFailure} with exit code 4 when the workload is deleted, 6 when the time
 *   expires, 7 when the time expires and replicas have no node, 8 when the rollout fails, is rolled
 *   back or is paused.
 */
export async function waitUntilSettled(session: Session, wanted: Workload): Promise<Workload> {
  const label = labelOf(wanted);
  const milestones = new Milestones();
  let last: WorkloadProgress = {
    kind: 'waiting',
    text: 'no status received',
    unplaced: false,
  };
  return watchWorkload(session, {
    subject: wanted,
    timeoutMs: session.settings.timeoutMs ?? WAIT_TIMEOUT_MS,
    onTimeout: (after) => {
      const unplaced = last.kind === 'waiting' && last.unplaced;
      const exitCode = unplaced ? ExitCode.noCapacity : ExitCode.timeout;
      return new CliFailure(exitCode, `${label} is not complete after ${after}: ${last.text}`);
    },
    look: async (workload, progress) => {
      if (workload === undefined)
        throw new CliFailure(ExitCode.conflict, `${label} was deleted while waiting`);
      last = judgeWorkload(workload, wanted.generation, wanted.status?.version);
      const text = oneLine(last.text);
      await progress.show(
        `${label}: ${text}`,
        describeReplicas(workload, MAX_REPLICA_LINES),
        last.kind === 'done' ||
          (last.kind === 'waiting' && milestones.isNews(workload, reasonIn(text))),
      );
      if (last.kind === 'failed')
        throw await withLastLines(
          session,
          workload,
          new CliFailure(last.exitCode, `${label}: ${text}`),
        );
      if (last.kind !== 'done') return undefined;
      if (workload.status?.rollout?.waitsForPromotion)
        await session.note(promoteHint(session, workload));
      return workload;
    },
  });
}

/** The reason in a progress text, after the counts. */
const reasonIn = (text: string): string =>
  text.includes(': ') ? text.slice(text.indexOf(': ')) : '';

/**
 * Waits until a deleted workload is gone, and prints the replicas that may still run on lost nodes.
 * @returns The replicas that may still run.
 */
export async function waitUntilDeleted(
  session: Session,
  deleted: Workload,
): Promise<readonly ReplicaStatus[]> {
  const label = labelOf(deleted);
  let mayStillRun = (deleted.status?.replicas ?? []).filter((replica) => replica.mayStillRun);
  let left = '';
  let most = 0;
  let least = Number.POSITIVE_INFINITY;
  const gone = await watchWorkload(session, {
    subject: deleted,
    timeoutMs: session.settings.timeoutMs ?? WAIT_TIMEOUT_MS,
    onTimeout: (after) =>
      new CliFailure(ExitCode.timeout, `${label} is not deleted after ${after}${left}`),
    look: async (workload, progress, remaining = mayStillRun) => {
      if (workload === undefined) {
        await progress.show(`${label}: deleted`);
        return remaining.filter((replica) => replica.mayStillRun);
      }
      const { totalReplicas = 0, reason = '', replicas = [] } = workload.status ?? {};
      mayStillRun = replicas.filter((replica) => replica.mayStillRun);
      left = `: ${count(totalReplicas, 'replica')} left${reason === '' ? '' : `, ${reason}`}`;
      most = Math.max(most, totalReplicas);
      const reached = tenths(totalReplicas, most);
      const details = describeReplicas(workload, MAX_REPLICA_LINES);
      await progress.show(
        `${label}: ${count(totalReplicas, 'replica')} left`,
        details,
        reached < least,
      );
      least = Math.min(least, reached);
      return undefined;
    },
  });
  for (const { id, nodeId } of gone) {
    await session.note(
      `${label}: replica ${id} may still run on lost node ${nodeId}; it is stopped when the node returns`,
    );
  }
  return gone;
}

/**
 * Adds details to a rollout failure: the failing replica, or the last log lines of a replica that
 * is not ready.
 */
export async function withLastLines(
  session: Session,
  workload: Workload,
  failure: CliFailure,
): Promise<CliFailure> {
  const known = workload.status?.rollout?.failure;
  const lines = known === undefined ? [] : [...failureLines(known)];
  if (known === undefined || known.lastLines.length === 0) {
    lines.push(...(await lastLogLines(session, known?.replicaId || suspectOf(workload))));
  }
  if (lines.length === 0) return failure;
  return new CliFailure(failure.exitCode, [failure.message, ...lines].join('\n'), {
    cause: failure,
  });
}

/**
 * Returns the id of the replica whose log most likely explains a failure; empty when no replica is
 * on a node.
 */
function suspectOf({ status }: Workload): string {
  const suspects = (status?.replicas ?? []).filter(
    (replica) => replica.version === status?.version && !replica.ready,
  );
  const suspect =
    suspects.find(({ phase }) => phase === ReplicaStatus_Phase.FAILED) ??
    suspects.find(({ restarts }) => restarts > 0) ??
    suspects[0];
  return suspect === undefined || suspect.nodeId === '' ? '' : suspect.id;
}

async function lastLogLines(session: Session, replicaId: string): Promise<readonly string[]> {
  if (replicaId === '') return [];
  const lines: string[] = [];
  try {
    const request = create(StreamLogsRequestSchema, { replicaId, tailLines: LAST_LOG_LINES });
    for await (const entry of session.client.streamLogs(
      request,
      session.callOptions(LAST_LOG_TIMEOUT_MS),
    )) {
      if (entry.sequence > 0n) lines.push(`  ${entry.line}`);
    }
  } catch {
    // The failure is reported even when its log cannot be read.
  }
  return lines.length === 0 ? [] : [`last lines of ${replicaId}:`, ...lines];
}
