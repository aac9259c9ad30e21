import { reflect } from '@bufbuild/protobuf/reflect';
import { ScoreTermsSchema, WorkloadPlan_Action } from '@cloudless/api';
import type { ExplainWorkloadResponse, WorkloadPlan } from '@cloudless/api';
import { count } from '../output/human.js';
import type { Style } from '../output/style.js';
import { formatTable, oneLine } from '../output/table.js';
import { foldSteps } from './fold-steps.js';
import { replicaTable } from './workload-view.js';

/** More lines than this say nothing more; the rest is counted. */
const MAX_LINES = 20;

/** Longer values are abridged; `-o json` has them whole. */
const MAX_VALUE = 120;

const verbs: Readonly<Record<WorkloadPlan_Action, string>> = {
  [WorkloadPlan_Action.NOTHING]: 'unchanged',
  [WorkloadPlan_Action.CREATE]: 'create',
  [WorkloadPlan_Action.UPDATE]: 'update',
  [WorkloadPlan_Action.MOVE]: 'move replicas',
};

/**
 * What applying would do: the difference by path, then where replicas would go and in which steps.
 */
export function planText(label: string, plan: WorkloadPlan, style: Style): string {
  if (plan.action === WorkloadPlan_Action.NOTHING) return `${label}: unchanged\n`;
  const lines = [`${label}: ${verbs[plan.action]}`];
  for (const { path, before, after } of plan.changes) {
    const absent = '(absent)';
    const change = `  ${path}: ${abridged(before) || absent} -> ${abridged(after) || absent}`;
    lines.push(
      before === '' ? style.green(change) : after === '' ? style.red(change) : style.yellow(change),
    );
  }
  if (plan.newVersion && plan.action === WorkloadPlan_Action.UPDATE)
    lines.push('  a new version: every replica is replaced');
  return `${[...lines, ...planLines(plan, style)].join('\n')}\n`;
}

/** Where new replicas would go, and in which steps, with the availability that is kept. */
export function planLines(plan: WorkloadPlan, style: Style): readonly string[] {
  const lines: string[] = [];
  const nodes = new Map<string, number>();
  for (const { nodeId } of plan.placements) nodes.set(nodeId, (nodes.get(nodeId) ?? 0) + 1);
  const others = plan.totalPlacements - plan.placements.length;
  const where = [...nodes].map(([node, replicas]) => `${node} (${replicas})`);
  if (others > 0) where.push(`and ${count(others, 'more replica')}`);
  if (where.length > 0) lines.push(`  new replicas on: ${where.join(', ')}`);
  if (plan.unplaced > 0) {
    const reason = plan.unplacedReason === '' ? '' : `: ${oneLine(plan.unplacedReason)}`;
    lines.push(style.yellow(`  ${count(plan.unplaced, 'replica')} would find no node${reason}`));
  }
  lines.push(...stepLines(plan));
  lines.push(...plan.warnings.map((warning) => style.yellow(`  warning: ${oneLine(warning)}`)));
  return lines;
}

/**
 * A table of the steps: what is done, how many are ready after it at least, how many must be, and
 * how many live at most.
 */
function stepLines(plan: WorkloadPlan): readonly string[] {
  if (plan.steps.length === 0) return [];
  const folded = foldSteps(plan.steps);
  const rows = folded
    .slice(0, MAX_LINES)
    .map(({ text, ready, live }) => [text, `${ready}`, `${plan.minAvailable}`, `${live}`]);
  const lines = formatTable(['STEP', 'READY', 'MIN', 'LIVE'], rows).trimEnd().split('\n');
  const told = folded.slice(0, MAX_LINES).reduce((sum, { steps }) => sum + steps, 0);
  const more = Math.max(plan.totalSteps, plan.steps.length) - told;
  if (more > 0) lines.push(`and ${count(more, 'more step')}`);
  lines.push(
    `lowest ready ${plan.lowestReady} (floor ${plan.minAvailable}), highest live ${plan.highestLive}`,
  );
  return lines.map((line) => `  ${line}`);
}

/** A value on one line; a long one, such as a script among the arguments, loses its middle. */
function abridged(value: string): string {
  const line = oneLine(value);
  return line.length <= MAX_VALUE
    ? line
    : `${line.slice(0, MAX_VALUE / 2)} … ${line.slice(-MAX_VALUE / 2)}`;
}

/** Why replicas are where they are: the summary, a verdict on each node, and the replicas. */
export function explainText(
  explained: ExplainWorkloadResponse,
  nowMs: number,
  style: Style,
): string {
  const nodes = formatTable(
    [
      'NODE',
      'ZONE',
      'FITS',
      'SCORE',
      ...ScoreTermsSchema.fields.map(({ name }) => name.toUpperCase().replaceAll('_', '-')),
      'REASON',
    ],
    explained.nodes.map(({ nodeId, zone, fits, score, terms, reason }) => [
      nodeId,
      zone,
      fits ? { text: 'yes', paint: style.green } : { text: 'no', paint: style.red },
      fits ? score.toFixed(3) : '',
      ...ScoreTermsSchema.fields.map((field) =>
        fits && terms !== undefined
          ? Number(reflect(ScoreTermsSchema, terms).get(field)).toFixed(2)
          : '',
      ),
      reason,
    ]),
  );
  return [`${oneLine(explained.summary)}\n`, nodes, replicaTable(explained.replicas, nowMs, style)]
    .filter((part) => part !== '')
    .join('\n');
}
