import { PlanOutcome_Kind, WorkloadPlan_Action, WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadPlan } from '@cloudless/api';
import { formatCount } from '../output/human.js';
import { indentStyle, type Style } from '../output/style.js';
import { formatTable, toOneLine } from '../output/table.js';
import { wrapText } from '../output/text-width.js';
import { formatFieldChange } from './field-change-view.js';
import { foldSteps } from './fold-steps.js';

/** Maximum number of step lines, so that a plan fits on a screen. The other steps are counted. */
const MAX_LINES = 20;

/** Nodes of new replicas that are listed by name. The replicas on other nodes are counted. */
const MAX_NODES = 12;

const ACTION_NAMES: Readonly<Record<WorkloadPlan_Action, string>> = {
  [WorkloadPlan_Action.NOTHING]: 'unchanged',
  [WorkloadPlan_Action.CREATE]: 'create',
  [WorkloadPlan_Action.UPDATE]: 'update',
  [WorkloadPlan_Action.MOVE]: 'move replicas',
  [WorkloadPlan_Action.DELETE]: 'delete',
  [WorkloadPlan_Action.PAUSE]: 'pause the rollout',
  [WorkloadPlan_Action.RESUME]: 'resume the rollout',
  [WorkloadPlan_Action.PROMOTE]: 'promote the rollout',
};

/**
 * Formats a plan: changed fields, placements of new replicas, and steps.
 * @param label - Name of the workload, for the first line.
 */
export function formatPlan(label: string, plan: WorkloadPlan, style: Style): string {
  if (plan.action === WorkloadPlan_Action.NOTHING) return `${label}: unchanged\n`;
  const lines = [`${label}: ${ACTION_NAMES[plan.action]}`];
  for (const change of plan.changes)
    lines.push(...formatFieldChange(WorkloadSpecSchema, change, style));
  if (plan.newVersion && plan.action === WorkloadPlan_Action.UPDATE)
    lines.push('  new version: every replica is replaced');
  return `${[...lines, ...formatPlanLines(plan, style)].join('\n')}\n`;
}

/** Returns the placements, steps, warnings and the end of a plan as lines. */
export function formatPlanLines(plan: WorkloadPlan, style: Style): readonly string[] {
  const { outcome } = plan;
  return [
    ...formatPlacements(plan, style),
    ...formatSteps(plan, style),
    ...plan.warnings.flatMap((warning) => formatWarning(toOneLine(warning), style)),
    ...(outcome === undefined || INEVITABLE.includes(outcome.kind)
      ? []
      : wrapLine(`ends: ${toOneLine(outcome.message)}`, style).map(style.yellow)),
  ];
}

/** Ends that need no line of their own. */
const INEVITABLE: readonly PlanOutcome_Kind[] = [
  PlanOutcome_Kind.COMPLETES,
  PlanOutcome_Kind.DELETED,
];

/** Returns the lines of a warning, which are never longer than the terminal is wide. */
export function formatWarning(warning: string, style: Style): readonly string[] {
  return wrapLine(`warning: ${warning}`, style).map(style.yellow);
}

/** Breaks an indented line at the width of the terminal. Further lines are indented more. */
function wrapLine(text: string, { tableWidth }: Style): readonly string[] {
  if (tableWidth === undefined) return [`  ${text}`];
  return wrapText(text, Math.max(MIN_WRAP_WIDTH, tableWidth - 4)).map((line, index) =>
    index === 0 ? `  ${line}` : `    ${line}`,
  );
}

/** Smallest width for a broken line, in character cells. */
const MIN_WRAP_WIDTH = 20;

function formatPlacements(plan: WorkloadPlan, style: Style): readonly string[] {
  const replicasByNode = new Map<string, number>();
  for (const { nodeId } of plan.placements)
    replicasByNode.set(nodeId, (replicasByNode.get(nodeId) ?? 0) + 1);
  const listed = [...replicasByNode].slice(0, MAX_NODES);
  const listedCount = listed.reduce((sum, [, replicas]) => sum + replicas, 0);
  const unlistedCount = Math.max(plan.totalPlacements, plan.placements.length) - listedCount;
  const places = listed.map(([node, replicas]) => `${node} (${replicas})`);
  if (unlistedCount > 0) places.push(`and ${formatCount(unlistedCount, 'more replica')}`);
  return places.length === 0 ? [] : wrapLine(`new replicas on: ${places.join(', ')}`, style);
}

/**
 * Returns the table of steps as lines. READY is the lowest number of ready replicas, LIVE the
 * highest number of live replicas, and MIN the number of replicas that must stay available.
 */
function formatSteps(plan: WorkloadPlan, style: Style): readonly string[] {
  if (plan.steps.length === 0) return [];
  const folded = foldSteps(plan.steps);
  // A step that cannot happen is the last one, and must not be hidden.
  const shown = folded.filter(({ blocked }, index) => blocked || index < MAX_LINES);
  const rows = shown.map(({ text, ready, live, blocked }) => [
    blocked ? { text, paint: style.yellow } : text,
    `${ready}`,
    `${plan.minAvailable}`,
    `${live}`,
  ]);
  const columns = [{ header: 'STEP', fit: 'wrap' as const }, 'READY', 'MIN', 'LIVE'];
  const lines = formatTable(columns, rows, indentStyle(style, 2)).trimEnd().split('\n');
  const shownSteps = shown.reduce((sum, { steps }) => sum + steps, 0);
  const hiddenSteps = Math.max(plan.totalSteps, plan.steps.length) - shownSteps;
  if (hiddenSteps > 0) lines.push(`and ${formatCount(hiddenSteps, 'more step')}`);
  lines.push(describeCounts(plan));
  return lines.map((line) => `  ${line}`);
}

/**
 * Describes the smallest number of ready replicas: `lowest ready 2 (minimum 2), highest live 4`. A
 * workload that only grows starts below its new minimum, which is no broken promise: `ready from 4
 * (growing to 6), highest live 6`.
 */
function describeCounts(plan: WorkloadPlan): string {
  const { lowestReady, minAvailable, highestLive, readyBefore, outcome } = plan;
  const end = outcome?.ready ?? 0;
  const ready =
    lowestReady >= readyBefore && end > readyBefore
      ? `ready from ${readyBefore} (growing to ${end})`
      : `lowest ready ${lowestReady} (minimum ${minAvailable})`;
  return `${ready}, highest live ${highestLive}`;
}
