import { timestampMs } from '@bufbuild/protobuf/wkt';
import { NodePlan_Action as NodeAction } from '@cloudless/api';
import type { NodePlan, Plan, PlanSummary } from '@cloudless/api';
import { formatWorkloadName } from '../names.js';
import { formatAge, formatCount, formatSpan } from '../output/human.js';
import { formatStyledTime, type Style } from '../output/style.js';
import { formatTable, toOneLine } from '../output/table.js';
import { formatFieldChange } from './field-change-view.js';
import { formatPlan, formatWarning } from './plan-view.js';

/** Formats a table of plans: id, age, expiry, state, warnings and changes. */
export function formatPlanTable(
  plans: readonly PlanSummary[],
  nowMs: number,
  style: Style,
): string {
  return formatTable(
    [
      'ID',
      { header: 'AGE', dropOrder: 1 },
      'STATE',
      { header: 'WARNINGS', dropOrder: 2 },
      { header: 'CHANGES', fit: 'wrap' },
    ],
    plans.map((plan) => [
      plan.id,
      formatAge(plan.createdAt, nowMs),
      describeState(plan, nowMs),
      plan.warnings === 0 ? '0' : { text: String(plan.warnings), paint: style.yellow },
      plan.summary,
    ]),
    style,
  );
}

/** Returns the state of a plan: `executed 5m ago`, or `expires in 55m`. */
function describeState({ executedAt, expiresAt }: PlanSummary, nowMs: number): string {
  if (executedAt !== undefined) return `executed ${formatAge(executedAt, nowMs)} ago`;
  return expiresAt === undefined ? '' : `expires in ${formatSpan(timestampMs(expiresAt) - nowMs)}`;
}

/** Formats a stored plan: its changes, its age and state, and the command that executes it. */
export function formatStoredPlan(plan: Plan, nowMs: number, style: Style): string {
  const { id, createdAt, expiresAt, executedAt } = plan;
  const state =
    executedAt === undefined
      ? `kept until ${formatStyledTime(expiresAt, style)}: cloudlessctl plan execute ${id}`
      : `executed at ${formatStyledTime(executedAt, style)}`;
  return `${formatPlannedChanges(plan, style)}plan ${id}, created ${formatAge(createdAt, nowMs)} ago, ${state}\n`;
}

/** Formats the effects of a plan on nodes and workloads. */
export function formatPlannedChanges({ nodes, workloads }: Plan, style: Style): string {
  const movesReplicas = workloads.length > 0;
  return [
    ...nodes.map((node) => formatNodePlan(node, movesReplicas, style)),
    ...workloads.map((workload) => formatPlan(formatWorkloadName(workload), workload, style)),
  ].join('');
}

const NODE_TEXTS: Readonly<Record<NodeAction, string>> = {
  [NodeAction.NOTHING]: 'unchanged',
  [NodeAction.CORDON]: 'cordon: accepts no new replicas',
  [NodeAction.UNCORDON]: 'uncordon: accepts new replicas',
  [NodeAction.DRAIN]: 'drain',
  [NodeAction.UPDATE]: 'update',
  [NodeAction.REMOVE]: 'remove',
  [NodeAction.CONFIRM_LOST]: 'confirm as lost',
};

function formatNodePlan(plan: NodePlan, movesReplicas: boolean, style: Style): string {
  const { action, nodeId, replicas, changes, warnings } = plan;
  const drained =
    action !== NodeAction.DRAIN
      ? ''
      : replicas === 0 || !movesReplicas
        ? ': no replicas to move'
        : `: ${formatCount(replicas, 'replica')} to move`;
  return [
    `node ${nodeId}: ${NODE_TEXTS[action]}${drained}`,
    ...changes.flatMap((change) => formatFieldChange(undefined, change, style)),
    ...warnings.flatMap(({ message }) => formatWarning(toOneLine(message), style)),
  ]
    .map((line) => `${line}\n`)
    .join('');
}
