import {
  NodePlan_Action as NodeAction,
  WorkloadPlan_Action as Action,
  type PlannedChange,
} from '@cloudless/api';
import type { NodeRecord } from '@cloudless/api/store';
import { InvalidInputError } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { checkFileRefs } from '../files/file-refs.js';
import { checkHostPorts } from '../network/host-port-conflicts.js';
import { startDrain, uncordonNode, type NodeChange } from '../node/drain.js';
import { confirmLoss, cordonNode, requireNode } from '../node/node-change.js';
import { requireRemovable } from '../node/node-removal.js';
import { updateNode } from '../node/node-update.js';
import type { AdmittedChange } from '../policy/policy-admission.js';
import type { ApiServerDeps } from '../ports.js';
import { createRestart, createUndo } from '../rollout/rollout-handlers.js';
import {
  decidePause,
  decidePromotion,
  decideResume,
  readRollout,
  type RolloutRecords,
  type RolloutUpdate,
} from '../rollout/rollout-update.js';
import { decideEviction } from '../what-if/evict-replicas.js';
import { planApply, planCreate, planScale, planUpdate } from '../workload/spec-changes.js';
import type { AdmissionDeps, WorkloadChange } from '../workload/workload-change.js';
import { planDeletion, type WorkloadDeletion } from '../workload/workload-deletion.js';

/** A change of a plan, validated as the RPC for this single change validates it. */
export type CheckedChange =
  | {
      readonly kind: 'workload';
      readonly change: WorkloadChange;
      /** Violations of policies. Undefined: policies do not judge the change. */
      readonly admitted: AdmittedChange | undefined;
    }
  | { readonly kind: 'deletion'; readonly change: WorkloadDeletion }
  | {
      readonly kind: 'rollout';
      readonly action: Action.PAUSE | Action.RESUME | Action.PROMOTE | Action.MOVE;
      readonly records: RolloutRecords;
      /** Undefined when the rollout has the requested state already. */
      readonly update: RolloutUpdate | undefined;
    }
  | {
      readonly kind: 'node';
      readonly action: NodeAction;
      readonly current: Stored<NodeRecord>;
      /** Undefined when the request changes nothing. */
      readonly change: NodeChange | undefined;
    }
  | { readonly kind: 'removal'; readonly current: Stored<NodeRecord> };

export type CheckDeps = Pick<
  ApiServerDeps,
  'explainImpossibleLimits' | 'placements' | 'dryRun' | 'clock' | 'nodes'
> &
  AdmissionDeps;

/**
 * Returns the reason for which a change overrides policies. Undefined: policies decide.
 */
export type GetOverride = (change: PlannedChange) => string | undefined;

/** When and how a change of a plan is validated. */
export interface ValidationContext {
  /**
   * Creation time of the plan, wall-clock milliseconds. Used as the time of a restart, so that a later
   * prediction gives the same spec.
   */
  readonly createdAtMs: number;
  readonly getOverride: GetOverride;
}

/**
 * Validates a change as the RPC for this change does.
 * @throws the errors of that RPC.
 */
export function validateChange(
  deps: CheckDeps,
  view: ClusterView,
  planned: PlannedChange,
  { createdAtMs, getOverride }: ValidationContext,
): CheckedChange {
  const { change } = planned;
  const judge = (changed: WorkloadChange): CheckedChange => {
    const admitted = deps.admission.check(view, changed, getOverride(planned));
    checkFileRefs(view, changed, deps.clock.wallTime());
    checkHostPorts(view, changed);
    return { kind: 'workload', change: changed, admitted };
  };
  switch (change.case) {
    case 'apply':
      return judge(planApply(deps, view, change.value));
    case 'create':
      return judge(planCreate(deps, view, change.value));
    case 'update':
      return judge(planUpdate(deps, view, change.value));
    case 'scale':
      return judge(planScale(view, change.value));
    case 'undo':
      return judge(createUndo(view, change.value));
    case 'restart':
      return judge(createRestart(view, change.value, createdAtMs));
    case 'delete':
      return {
        kind: 'deletion',
        change: planDeletion(view, change.value, deps.clock.wallTime()),
      };
    case 'pause':
    case 'resume':
    case 'promote':
      return validateRolloutChange(view, change);
    case 'evict': {
      const records = readRollout(view, change.value);
      const update = decideEviction(view, change.value, records, createdAtMs);
      return { kind: 'rollout', action: Action.MOVE, records, update };
    }
    case undefined:
      throw new InvalidInputError([{ field: 'changes', message: 'names no change' }]);
    default:
      return validateNodeChange(deps, view, change);
  }
}

type RolloutChange = Extract<PlannedChange['change'], { case: 'pause' | 'resume' | 'promote' }>;

function validateRolloutChange(view: ClusterView, change: RolloutChange): CheckedChange {
  const records = readRollout(view, change.value);
  const [workload, control] = [records.workload.value, records.control.value];
  switch (change.case) {
    case 'pause':
      return {
        kind: 'rollout',
        action: Action.PAUSE,
        records,
        update: decidePause(workload, control),
      };
    case 'resume':
      return {
        kind: 'rollout',
        action: Action.RESUME,
        records,
        update: decideResume(workload, control),
      };
    case 'promote':
      return {
        kind: 'rollout',
        action: Action.PROMOTE,
        records,
        update: decidePromotion(change.value, workload, control),
      };
  }
}

type NodeChangeRequest = Extract<
  PlannedChange['change'],
  { case: 'drain' | 'cordon' | 'uncordon' | 'updateNode' | 'removeNode' | 'confirmNodeLost' }
>;

function validateNodeChange(
  { clock, nodes, placements }: CheckDeps,
  view: ClusterView,
  change: NodeChangeRequest,
): CheckedChange {
  const nowMs = clock.wallTime();
  if (change.case === 'removeNode')
    return { kind: 'removal', current: requireRemovable({ nodes }, view, change.value) };
  const current = requireNode(view, change.value.nodeId);
  const toChecked = (action: NodeAction, decided: NodeChange | undefined): CheckedChange => ({
    kind: 'node',
    action,
    current,
    change: decided,
  });
  switch (change.case) {
    case 'drain': {
      const replicaCount = placements.getAllocated(current.value.id).replicas;
      const facts = { nowMs, replicaCount };
      return toChecked(NodeAction.DRAIN, startDrain(current.value, change.value, facts));
    }
    case 'cordon':
      return toChecked(NodeAction.CORDON, cordonNode(current.value));
    case 'uncordon':
      return toChecked(NodeAction.UNCORDON, uncordonNode(current.value));
    case 'updateNode':
      return toChecked(NodeAction.UPDATE, updateNode(current.value, change.value, nowMs));
    case 'confirmNodeLost':
      return toChecked(
        NodeAction.CONFIRM_LOST,
        confirmLoss(current.value, nodes.status(current.value.id).phase),
      );
  }
}
