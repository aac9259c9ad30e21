import { create } from '@bufbuild/protobuf';
import {
  PlanSummarySchema,
  WorkloadPlan_Action as Action,
  resolveNamespace,
  type Plan,
  type PlanSummary,
  type PlannedChange,
} from '@cloudless/api';
import { definedFields } from '@cloudless/base';

/** Returns a plan without its details, with its changes in one line. */
export function summarizePlan(plan: Plan): PlanSummary {
  const { id, createdAt, expiresAt, executedAt, changes, workloads, nodes } = plan;
  return create(PlanSummarySchema, {
    id,
    ...definedFields({ createdAt, expiresAt, executedAt }),
    summary: changes.map((change) => describeChange(change, plan)).join(', '),
    warnings: [...workloads, ...nodes].reduce((sum, { warnings }) => sum + warnings.length, 0),
  });
}

const VERBS = {
  apply: 'update',
  create: 'create',
  update: 'update',
  scale: 'scale',
  undo: 'undo',
  restart: 'restart',
  evict: 'move replicas of',
  delete: 'delete',
  pause: 'pause',
  resume: 'resume',
  promote: 'promote',
  drain: 'drain node',
  cordon: 'cordon node',
  uncordon: 'uncordon node',
  updateNode: 'update node',
  removeNode: 'remove node',
  confirmNodeLost: 'confirm loss of node',
} as const;

function describeChange({ change }: PlannedChange, { workloads }: Plan): string {
  if (change.case === undefined) return '';
  if ('nodeId' in change.value) return `${VERBS[change.case]} ${change.value.nodeId}`;
  const namespace = resolveNamespace(change.value);
  const { name } = change.value;
  const isCreated = workloads.some(
    (plan) => plan.namespace === namespace && plan.name === name && plan.action === Action.CREATE,
  );
  const verb = isCreated ? VERBS.create : VERBS[change.case];
  const target = change.case === 'scale' ? ` to ${change.value.replicas ?? 0}` : '';
  return `${verb} ${namespace}/${name}${target}`;
}
