import { WorkloadPlan_Action } from '@cloudless/api';
import type { WorkloadPlan } from '@cloudless/api';
import { formatCount } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable, toOneLine } from '../output/table.js';
import { foldSteps } from './fold-steps.js';

/** Maximum number of step lines, so that a plan fits on a screen. The other steps are counted. */
const MAX_LINES = 20;

/** Maximum length of a field value. `-o json` prints the whole value. */
const MAX_VALUE_LENGTH = 120;

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
  for (const { path, before, after } of plan.changes) {
    const absent = '(absent)';
    const change = `  ${path}: ${abridge(before) || absent} -> ${abridge(after) || absent}`;
    lines.push(
      before === '' ? style.green(change) : after === '' ? style.red(change) : style.yellow(change),
    );
  }
  if (plan.newVersion && plan.action === WorkloadPlan_Action.UPDATE)
    lines.push('  new version: every replica is replaced');
  return `${[...lines, ...formatPlanLines(plan, style)].join('\n')}\n`;
}

/** Returns the placements, steps and warnings of a plan as lines. */
export function formatPlanLines(plan: WorkloadPlan, style: Style): readonly string[] {
  const lines: string[] = [];
  const replicasByNode = new Map<string, number>();
  for (const { nodeId } of plan.placements)
    replicasByNode.set(nodeId, (replicasByNode.get(nodeId) ?? 0) + 1);
  const unlistedCount = plan.totalPlacements - plan.placements.length;
  const places = [...replicasByNode].map(([node, replicas]) => `${node} (${replicas})`);
  if (unlistedCount > 0) places.push(`and ${formatCount(unlistedCount, 'more replica')}`);
  if (places.length > 0) lines.push(`  new replicas on: ${places.join(', ')}`);
  if (plan.unplaced > 0) {
    const reason = plan.unplacedReason === '' ? '' : `: ${toOneLine(plan.unplacedReason)}`;
    lines.push(
      style.yellow(`  ${formatCount(plan.unplaced, 'replica')} cannot be placed${reason}`),
    );
  }
  lines.push(...formatSteps(plan));
  lines.push(...plan.warnings.map((warning) => style.yellow(`  warning: ${toOneLine(warning)}`)));
  return lines;
}

/**
 * Returns the table of steps as lines. READY is the lowest number of ready replicas, LIVE the
 * highest number of live replicas, and MIN the number of replicas that must stay available.
 */
function formatSteps(plan: WorkloadPlan): readonly string[] {
  if (plan.steps.length === 0) return [];
  const folded = foldSteps(plan.steps);
  const rows = folded
    .slice(0, MAX_LINES)
    .map(({ text, ready, live }) => [text, `${ready}`, `${plan.minAvailable}`, `${live}`]);
  const lines = formatTable(['STEP', 'READY', 'MIN', 'LIVE'], rows).trimEnd().split('\n');
  const shownSteps = folded.slice(0, MAX_LINES).reduce((sum, { steps }) => sum + steps, 0);
  const hiddenSteps = Math.max(plan.totalSteps, plan.steps.length) - shownSteps;
  if (hiddenSteps > 0) lines.push(`and ${formatCount(hiddenSteps, 'more step')}`);
  lines.push(
    `lowest ready ${plan.lowestReady} (minimum ${plan.minAvailable}), highest live ${plan.highestLive}`,
  );
  return lines.map((line) => `  ${line}`);
}

/** Formats a value on one line; the middle of a long value is replaced by `…`. */
function abridge(value: string): string {
  const line = toOneLine(value);
  return line.length <= MAX_VALUE_LENGTH
    ? line
    : `${line.slice(0, MAX_VALUE_LENGTH / 2)} … ${line.slice(-MAX_VALUE_LENGTH / 2)}`;
}
