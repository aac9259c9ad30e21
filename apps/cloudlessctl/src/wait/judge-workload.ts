import { ReplicaStatus_Phase, RolloutStatus_Phase, WorkloadStatus_Phase } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import { ExitCode } from '../failure.js';
import { formatWord } from '../output/human.js';

/** How far a workload is from what was asked for. */
export type WorkloadProgress =
  | { readonly kind: 'done'; readonly text: string }
  | {
      readonly kind: 'waiting';
      readonly text: string;
      /** Some replicas have no node: the reason to give when the time is over. */
      readonly unplaced: boolean;
    }
  | { readonly kind: 'failed'; readonly text: string; readonly exitCode: number };

/**
 * Judges whether a workload has become what its generation `generation`, or a newer one, says. Done is: observed, the rollout
 * complete, nothing of an older version left, and every wanted replica ready or run to completion.
 */
export function judgeWorkload(workload: Workload, generation: bigint): WorkloadProgress {
  const { status } = workload;
  if (status === undefined || status.observedGeneration < generation) {
    return { kind: 'waiting', text: 'the change has not been taken up yet', unplaced: false };
  }
  const reason = status.reason || status.rollout?.reason || '';
  const because = reason === '' ? '' : `: ${reason}`;
  if (status.phase === WorkloadStatus_Phase.TERMINATING) {
    return { kind: 'failed', text: 'it is being deleted', exitCode: ExitCode.conflict };
  }
  const rollout = status.rollout?.phase ?? RolloutStatus_Phase.COMPLETED;
  const end = rolloutEnds[rollout];
  if (end !== undefined) return { kind: 'failed', text: `the rollout ${end}${because}`, exitCode: ExitCode.rolloutFailed };
  if (status.phase === WorkloadStatus_Phase.FAILED)
    return { kind: 'failed', text: `it failed${because}`, exitCode: ExitCode.rolloutFailed };
  const {
    desiredReplicas: desired,
    readyReplicas: ready,
    updatedReplicas: updated,
    totalReplicas: total,
    succeededReplicas,
  } = status;
  if (status.phase === WorkloadStatus_Phase.SUCCEEDED)
    return { kind: 'done', text: `${succeededReplicas} of ${desired} succeeded` };
  const finished = succeededReplicas > 0 ? `, ${succeededReplicas} succeeded` : '';
  const settled =
    rollout === RolloutStatus_Phase.COMPLETED &&
    total === updated &&
    total <= desired &&
    ready === total &&
    total + succeededReplicas >= desired;
  if (settled) return { kind: 'done', text: `${ready} of ${desired} ready${finished}` };
  const others = total > updated ? `, ${total - updated} old` : '';
  return {
    kind: 'waiting',
    text: `${ready} of ${desired} ready, ${updated} updated${others}${finished}${because}`,
    unplaced: hasUnplaced(workload),
  };
}

/** One line for each replica that is not ready, for people who watch. */
export function describeReplicas(workload: Workload, most: number): readonly string[] {
  const replicas = (workload.status?.replicas ?? []).filter(
    ({ phase }) => phase !== ReplicaStatus_Phase.STOPPED && phase !== ReplicaStatus_Phase.SUCCEEDED,
  );
  const lines = replicas
    .slice(0, most)
    .map(({ id, phase, ready, nodeId, version, reason }) =>
      [id, formatWord(ReplicaStatus_Phase[phase]), ready ? 'ready' : 'not ready', `v${version}`, nodeId, reason]
        .filter((part) => part !== '')
        .join('  '),
    );
  return replicas.length > most ? [...lines, `and ${replicas.length - most} more`] : lines;
}

function hasUnplaced({ status }: Workload): boolean {
  if (status === undefined) return false;
  const scheduling = status.phase === WorkloadStatus_Phase.PENDING || status.phase === WorkloadStatus_Phase.SCHEDULING;
  return (
    (scheduling && status.reason !== '') ||
    status.replicas.some(({ phase, reason, leaving }) => phase === ReplicaStatus_Phase.PENDING && reason !== '' && !leaving)
  );
}

/** Phases of a rollout that no waiting changes. */
const rolloutEnds: Partial<Record<RolloutStatus_Phase, string>> = {
  [RolloutStatus_Phase.FAILED]: 'failed',
  [RolloutStatus_Phase.PAUSED]: 'is paused',
  [RolloutStatus_Phase.ROLLED_BACK]: 'was rolled back',
};
