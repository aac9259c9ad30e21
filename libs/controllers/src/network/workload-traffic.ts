import { Rollout_Strategy as Strategy } from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  createServingFilter,
  toCanonicalVersion,
  type ClusterView,
} from '@cloudless/cluster-state';
import { DEFAULT_ENDPOINT_WEIGHT } from '@cloudless/network';
import { computeVersionWeights, hasWeightedSteps, isRollingBack } from './version-weights.js';

/** Replicas of a workload that receive new connections, and their shares. */
export interface WorkloadTraffic {
  /** Equal texts stand for equal rules. */
  readonly signature: string;
  /** True when the rules may change when a replica becomes ready or stops being ready. */
  readonly dependsOnReplicas: boolean;
  /**
   * Returns true when replicas of this version receive connections: under BLUE_GREEN the active one
   * only.
   */
  readonly isServing: (replica: ReplicaRecord) => boolean;
  /** Weight relative to the other replicas of the workload. */
  readonly getWeight: (replica: ReplicaRecord) => number;
}

/** Returns how new connections are spread over the replicas of a workload. */
export function describeTraffic(view: ClusterView, workload: WorkloadRecord): WorkloadTraffic {
  const { uid, name } = workload;
  const control = view.control(uid)?.value;
  const isBlueGreen =
    control?.rollout?.strategy === Strategy.BLUE_GREEN && control.activeVersion !== 0;
  const active = isBlueGreen ? toCanonicalVersion(view, uid, control.activeVersion) : 0;
  const weights = computeVersionWeights(view, workload);
  const weightText = weights && `${weights.version}:${weights.newWeight}:${weights.otherWeight}`;
  return {
    signature: `${name}/${active}/${weightText ?? ''}`,
    dependsOnReplicas:
      hasWeightedSteps(workload) || (control !== undefined && isRollingBack(control)),
    isServing: createServingFilter(view, uid),
    getWeight: ({ version }) => {
      if (weights === undefined) return DEFAULT_ENDPOINT_WEIGHT;
      const isNew = toCanonicalVersion(view, uid, version) === weights.version;
      return isNew ? weights.newWeight : weights.otherWeight;
    },
  };
}
