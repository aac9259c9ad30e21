import { create } from '@bufbuild/protobuf';
import { StreamLogsRequestSchema } from '@cloudless/api';
import type { ReplicaStatus, Workload } from '@cloudless/api';
import { CliFailure, ExitCode } from '../call/failure.js';
import { formatWorkloadName } from '../names.js';
import { formatCount } from '../output/human.js';
import { toOneLine } from '../output/table.js';
import { formatPromoteHint } from '../views/rollout-hints.js';
import type { CliSession } from '../call/cli-session.js';
import { formatFailure } from '../views/rollout-view.js';
import { findSuspect } from './find-suspect.js';
import { judgeWorkload } from './judge-workload.js';
import type { WorkloadProgress } from './judge-workload.js';
import { drawBar, drawResult, drawTitle } from './picture.js';
import type { PictureView } from './picture.js';
import type { Progress } from './progress.js';
import { RefusalCheck } from './refusal-check.js';
import { getFraction } from './rollout-counts.js';
import { watchWorkload, type RemainingReplicas } from './watch-workload.js';
import { drawWorkload } from './workload-picture.js';

export { formatWorkloadName };

/**
 * Time limit of `--wait` without `--timeout`; equal to the default progress deadline of a rollout.
 */
export const WAIT_TIMEOUT_MS = 10 * 60_000;

/** Number of log lines shown after a failure; the last lines usually contain the error. */
const LAST_LOG_LINES = 10;
/** Time limit for reading these lines, because the node may not answer. */
const LAST_LOG_TIMEOUT_MS = 3_000;

/** Options of {@link waitUntilSettled}. */
export interface WaitOptions {
  /** True waits on when no present node can ever run a replica. Default: false. */
  readonly waitCapacity?: boolean;
}

/**
 * Waits until a workload has reached a generation or waits for a promotion, and shows the progress.
 * @param wanted - The workload as the change returned it. Its uid, generation and version define
 *   the state to reach.
 * @returns The reached state.
 * @throws {@link CliFailure} with exit code 4 when the workload is deleted, 6 when the time
 *   expires, 7 when the time expires and replicas have no node, or when every node refuses them for
 *   a reason that time does not change, 8 when the rollout fails, is rolled back or is paused.
 */
export async function waitUntilSettled(
  session: CliSession,
  wanted: Workload,
  { waitCapacity = false }: WaitOptions = {},
): Promise<Workload> {
  const label = formatWorkloadName(wanted);
  const refusal = new RefusalCheck(session, wanted);
  let last: WorkloadProgress = {
    kind: 'waiting',
    text: 'no status received',
    unplaced: false,
  };
  const onTimeout = (after: string): CliFailure => {
    const unplaced = last.kind === 'waiting' && last.unplaced;
    const exitCode = unplaced ? ExitCode.noCapacity : ExitCode.timeout;
    const goal = wanted.spec?.replicas === 0 ? 'stop' : 'become ready';
    return new CliFailure(exitCode, `${label} did not ${goal} within ${after}: ${last.text}`);
  };
  const evaluate = async (
    workload: Workload | undefined,
    progress: Progress,
  ): Promise<Workload | undefined> => {
    if (workload === undefined)
      throw new CliFailure(ExitCode.conflict, `${label} was deleted while waiting`);
    last = judgeWorkload(workload, wanted.generation, wanted.status?.version);
    const text = toOneLine(last.text);
    refusal.setUnplaced(!waitCapacity && last.kind === 'waiting' && last.unplaced);
    if (last.kind === 'failed')
      throw await withFailureDetails(
        session,
        workload,
        new CliFailure(last.exitCode, `${label}: ${text}`),
      );
    // The coordinator observes a change within milliseconds: nothing to show until then.
    if ((workload.status?.observedGeneration ?? 0n) < wanted.generation) return undefined;
    const isFinal = last.kind === 'done';
    await progress.showState({
      text: `${label}: ${text}`,
      fraction: getFraction(workload),
      isFinal,
      draw: (view) =>
        isFinal ? [drawResult(`${label}: ${text}`, view)] : drawWorkload(workload, view),
    });
    if (!isFinal) return undefined;
    if (workload.status?.rollout?.waitsForPromotion)
      await session.printNotice(formatPromoteHint(session, workload));
    return workload;
  };
  try {
    const timeoutMs = session.settings.timeoutMs ?? WAIT_TIMEOUT_MS;
    return await watchWorkload(session, {
      ...{ subject: wanted, timeoutMs, abortSignal: refusal.signal },
      onTimeout,
      evaluate,
    });
  } finally {
    refusal.end();
  }
}

/**
 * Waits until a workload is deleted, and prints the replicas that may still run on lost nodes.
 * @param deleted - The workload as the deletion returned it.
 * @returns The replicas that may still run.
 * @throws {@link CliFailure} with exit code 6 when the time expires.
 */
export async function waitUntilDeleted(
  session: CliSession,
  deleted: Workload,
): Promise<RemainingReplicas> {
  const label = formatWorkloadName(deleted);
  let mayStillRun = selectMayStillRun(deleted.status?.replicas ?? []);
  let stateSuffix = '';
  let highestTotal = 0;
  const stranded = await watchWorkload(session, {
    subject: deleted,
    // Of a very large workload, the last item names the replicas that may still run.
    omitReplicas: (deleted.status?.omittedReplicas ?? 0) > 0,
    timeoutMs: session.settings.timeoutMs ?? WAIT_TIMEOUT_MS,
    onTimeout: (after) =>
      new CliFailure(ExitCode.timeout, `${label} was not deleted within ${after}${stateSuffix}`),
    // When the workload was deleted before the watch, only the response of the deletion names
    // replicas.
    evaluate: async (workload, progress, remaining = mayStillRun) => {
      if (workload === undefined) {
        const text = `${label}: deleted`;
        const draw = (view: PictureView) => [drawResult(text, view)];
        await progress.showState({ text, fraction: 1, isFinal: true, draw });
        const { replicas, omittedReplicas } = remaining;
        return { ...selectMayStillRun(replicas), omittedReplicas };
      }
      const { totalReplicas = 0, reason = '', replicas = [] } = workload.status ?? {};
      mayStillRun = selectMayStillRun(replicas);
      const left = `${formatCount(totalReplicas, 'replica')} left`;
      stateSuffix = `: ${left}${reason === '' ? '' : `, ${reason}`}`;
      highestTotal = Math.max(highestTotal, totalReplicas);
      const scale = highestTotal;
      await progress.showState({
        text: `${label}: ${left}`,
        fraction: highestTotal === 0 ? 0 : 1 - totalReplicas / highestTotal,
        isFinal: false,
        draw: (view) => [
          drawTitle(label, 'is being deleted', view),
          drawBar(
            { title: 'left', count: totalReplicas, scale, text: left, paint: view.style.yellow },
            view,
          ),
        ],
      });
      return undefined;
    },
  });
  for (const { id, nodeId } of stranded.replicas) {
    await session.printNotice(
      `${label}: replica ${id} may still run on lost node ${nodeId}; it is stopped when the node returns`,
    );
  }
  if (stranded.omittedReplicas > 0) {
    const more = formatCount(stranded.omittedReplicas, 'more replica');
    await session.printNotice(
      `${label}: ${more} may still run on lost nodes, and are stopped when the nodes return`,
    );
  }
  return stranded;
}

/** Returns the replicas that may still run. The number of omitted replicas is unknown. */
function selectMayStillRun(replicas: readonly ReplicaStatus[]): RemainingReplicas {
  return { replicas: replicas.filter(({ mayStillRun }) => mayStillRun), omittedReplicas: 0 };
}

/**
 * Adds details to a rollout failure: the failing replica that the status names, and the last log
 * lines of this replica or of another replica that is not ready.
 */
export async function withFailureDetails(
  session: CliSession,
  workload: Workload,
  failure: CliFailure,
): Promise<CliFailure> {
  const recorded = workload.status?.rollout?.failure;
  const lines = recorded === undefined ? [] : [...formatFailure(recorded)];
  if (recorded === undefined || recorded.lastLines.length === 0) {
    const replicaId = recorded?.replicaId || (await findSuspect(session, workload));
    lines.push(...(await readLastLogLines(session, replicaId)));
  }
  if (lines.length === 0) return failure;
  return new CliFailure(failure.exitCode, [failure.message, ...lines].join('\n'), {
    cause: failure,
  });
}

/** Returns the last log lines of a replica with a title; empty when the log cannot be read. */
async function readLastLogLines(
  session: CliSession,
  replicaId: string,
): Promise<readonly string[]> {
  if (replicaId === '') return [];
  const lines: string[] = [];
  try {
    const request = create(StreamLogsRequestSchema, { replicaId, tailLines: LAST_LOG_LINES });
    for await (const entry of session.client.streamLogs(
      request,
      session.getCallOptions(LAST_LOG_TIMEOUT_MS),
    )) {
      if (entry.sequence > 0n) lines.push(`  ${entry.line}`);
    }
  } catch {
    // The failure is reported even when its log cannot be read.
  }
  return lines.length === 0 ? [] : [`last lines of ${replicaId}:`, ...lines];
}
