import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, toTemplate } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { Cluster, Preemption } from '@cloudless/scheduler';
import { isGlobal } from '../rollout/global-targets.js';
import { toPlacementRequest } from '../placement/scheduler-input.js';
import { isNominated } from './nominations.js';
import {
  createPreemptOptions,
  decidePreemption,
  mayPreempt,
  type PreemptionSources,
} from './preemption-plan.js';
import { PredictedVictims } from './predicted-victims.js';
import { HIGHEST_PRIORITY_WITHOUT_PREEMPTION } from './waiting-preemptors.js';

/** Input of the explanation. */
export interface DescribePreemptionSources extends PreemptionSources {
  readonly cluster: Cluster;
}

/**
 * Describes what preemption does for the next replica of a workload: `would preempt 2 replicas of
 * default/batch on n3`, where a waiting replica holds resources, or which `min_available` prevents a
 * preemption. Empty when a node fits, and for workloads that may not preempt.
 */
export function describePreemption(
  sources: DescribePreemptionSources,
  workload: WorkloadRecord,
): string {
  const { view } = sources;
  const template = toTemplate(workload.spec ?? create(WorkloadSpecSchema));
  const { priority = 0 } = template;
  if (priority <= HIGHEST_PRIORITY_WITHOUT_PREEMPTION) return '';
  const waiting = Array.from(view.replicasOf(workload.uid), ({ value }) => value).filter(
    ({ nodeId, desiredRunning, reason }) => nodeId === '' && desiredRunning && reason !== '',
  );
  const nominated = waiting.find(isNominated);
  if (nominated !== undefined)
    return `a replica waits for preempted replicas on ${nominated.nominatedNodeId} to stop and holds its resources there`;
  const next = waiting[0];
  // A GLOBAL workload has a replica for each node; only those that wait need room.
  if (next === undefined && isGlobal(workload.spec)) return '';
  const stored = view.workload(workload.uid);
  if (stored !== undefined && next !== undefined && !mayPreempt(view, stored, next.version))
    return 'none for the new set of a blue/green rollout, which is placed as a whole';
  const { decision, budgets } =
    next === undefined
      ? decideForNewReplica(sources, workload)
      : decidePreemption(sources, workload, next);
  switch (decision.kind) {
    case 'fits':
      return '';
    case 'preempt':
      if (decision.victims.length === 0)
        return `not needed: the replicas that are stopping on ${decision.nodeId} make enough room`;
      return describeVictims(view, decision);
    case 'impossible': {
      if (decision.withoutPermits === undefined)
        return `would not help: no node fits even without its replicas of a priority below ${priority}`;
      const uids = new Set(decision.withoutPermits.victims.map(({ workloadId }) => workloadId));
      const protectedBy = [...uids].flatMap((uid) => {
        const owner = view.workload(uid)?.value;
        const { available, minAvailable } = budgets.of(uid);
        return owner === undefined
          ? []
          : [
              `${owner.namespace}/${owner.name} has ${available} available replicas and min_available ${minAvailable}`,
            ];
      });
      return `prevented by min_available: ${describeVictims(view, decision.withoutPermits)}${protectedBy.length === 0 ? '' : `, but ${protectedBy.join(', ')}`}`;
    }
  }
}

function decideForNewReplica(sources: DescribePreemptionSources, workload: WorkloadRecord) {
  const { view, cluster } = sources;
  const { options, budgets } = createPreemptOptions(sources, (id) => view.replica(id)?.value);
  const template = toTemplate(workload.spec ?? create(WorkloadSpecSchema));
  return { decision: cluster.preempt(toPlacementRequest(workload, template), options), budgets };
}

function describeVictims(
  view: DescribePreemptionSources['view'],
  { nodeId, victims }: Preemption,
): string {
  const predicted = new PredictedVictims();
  for (const { workloadId } of victims) predicted.add(nodeId, workloadId);
  return predicted.describe((uid) => view.workload(uid)?.value);
}
