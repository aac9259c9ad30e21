import {
  NodePlan_Action as NodeAction,
  WorkloadPlan_Action as Action,
  type FieldChange,
  type NodePlan,
  type WorkloadPlan,
} from '@cloudless/api';

/**
 * Describes the first difference between the nodes of a stored plan and their current outcome:
 * `node node-1: it was to be cordoned, it would be left as it is now`.
 * @returns Undefined when everything that a plan shows about nodes is equal.
 */
export function describeNodeDifference(
  planned: readonly NodePlan[],
  now: readonly NodePlan[],
): string | undefined {
  for (const [index, was] of planned.entries()) {
    const is = now[index];
    if (is === undefined) continue;
    const place = `node ${was.nodeId}`;
    if (was.action !== is.action)
      return `${place}: it was to be ${NODE_TEXTS[was.action]}, it would be ${NODE_TEXTS[is.action]} now`;
    if (!hasSameChanges(was.changes, is.changes))
      return `${place}: the values that the change is based on have changed`;
    const difference = describeWarnings(toTexts(was), toTexts(is));
    if (difference !== undefined) return `${place}: ${difference}`;
  }
  return undefined;
}

const NODE_TEXTS: Readonly<Record<NodeAction, string>> = {
  [NodeAction.NOTHING]: 'left as it is',
  [NodeAction.CORDON]: 'cordoned',
  [NodeAction.UNCORDON]: 'uncordoned',
  [NodeAction.DRAIN]: 'drained',
  [NodeAction.UPDATE]: 'updated',
  [NodeAction.REMOVE]: 'removed',
  [NodeAction.CONFIRM_LOST]: 'confirmed as lost',
};

const toTexts = ({ warnings }: NodePlan) => ({ warnings: warnings.map(({ message }) => message) });

/**
 * Describes the first difference between a stored plan and its current outcome for people:
 * `default/web: generation 4 was planned, it is 5 now`.
 * @param planned - The plans of the workloads when the plan was created.
 * @param now - The plans of the same changes, predicted again.
 * @returns Undefined when everything that a plan shows is equal.
 */
export function describePlanDifference(
  planned: readonly WorkloadPlan[],
  now: readonly WorkloadPlan[],
): string | undefined {
  for (let index = 0; index < Math.max(planned.length, now.length); index += 1) {
    const [was, is] = [planned[index], now[index]];
    if (was !== undefined && (is === undefined || formatName(was) !== formatName(is)))
      return describeMissing(was, now) ?? describeAdded(is);
    if (was === undefined) return describeAdded(is);
    const difference = is === undefined ? undefined : describeDifference(was, is);
    if (difference !== undefined) return `${formatName(was)}: ${difference}`;
  }
  return undefined;
}

function describeMissing(was: WorkloadPlan, now: readonly WorkloadPlan[]): string | undefined {
  if (now.some((plan) => formatName(plan) === formatName(was))) return undefined;
  return `${formatName(was)}: its replicas were to be moved, but now it has no replicas to move`;
}

function describeAdded(is: WorkloadPlan | undefined): string | undefined {
  return is === undefined
    ? undefined
    : `${formatName(is)}: its replicas would now have to be moved too`;
}

/** Compares causes (generation, spec) before their consequences (steps, placements, numbers). */
function describeDifference(was: WorkloadPlan, is: WorkloadPlan): string | undefined {
  if (was.action !== is.action)
    return `it was to be ${ACTION_TEXTS[was.action]}, it would be ${ACTION_TEXTS[is.action]} now`;
  if (was.generation !== is.generation)
    return `generation ${was.generation} was planned, it is ${is.generation} now`;
  const valueDifference = VALUES.map(([name, text]) =>
    describeValue(text, was[name], is[name]),
  ).find((text) => text !== undefined);
  return (
    describeSpecChanges(was, is) ??
    describeSteps(was, is) ??
    describePlacements(was, is) ??
    valueDifference ??
    describeWarnings(was, is)
  );
}

const ACTION_TEXTS: Readonly<Record<Action, string>> = {
  [Action.NOTHING]: 'left as it is',
  [Action.CREATE]: 'created',
  [Action.UPDATE]: 'updated',
  [Action.MOVE]: 'moved',
  [Action.DELETE]: 'deleted',
  [Action.PAUSE]: 'paused',
  [Action.RESUME]: 'resumed',
  [Action.PROMOTE]: 'promoted',
};

/** Fields of a plan that are compared by value, with their texts. */
const VALUES = [
  ['unplaced', 'the number of new replicas that fit on no node'],
  ['lowestReady', 'the smallest number of ready replicas'],
  ['minAvailable', 'min_available'],
  ['highestLive', 'the largest number of live replicas'],
  ['totalSteps', 'the number of steps'],
  ['unplacedReason', 'the reason why they fit on no node'],
] as const;

function describeValue(
  name: string,
  was: string | number,
  is: string | number,
): string | undefined {
  return was === is
    ? undefined
    : `${name} was planned as ${was === '' ? 'nothing' : was}, it is ${is === '' ? 'nothing' : is} now`;
}

function describeSpecChanges(
  { changes: was }: WorkloadPlan,
  { changes: is }: WorkloadPlan,
): string | undefined {
  return hasSameChanges(was, is) ? undefined : 'the spec that the change is based on has changed';
}

function hasSameChanges(was: readonly FieldChange[], is: readonly FieldChange[]): boolean {
  return was.length === is.length && was.every((change, index) => isSameChange(change, is[index]));
}

function isSameChange(a: FieldChange, b: FieldChange | undefined): boolean {
  return a.path === b?.path && a.before === b.before && a.after === b.after;
}

function describePlacements(
  { placements: was }: WorkloadPlan,
  { placements: is }: WorkloadPlan,
): string | undefined {
  const [planned, now] = [was, is].map(countByNode);
  const nodeIds = [...new Set([...(planned?.keys() ?? []), ...(now?.keys() ?? [])])].sort();
  const differing = nodeIds.map((nodeId) => ({
    nodeId,
    before: planned?.get(nodeId) ?? 0,
    after: now?.get(nodeId) ?? 0,
  }));
  // A node that receives fewer replicas is the cause when another node receives more.
  const difference =
    differing.find(({ before, after }) => before > after) ??
    differing.find(({ before, after }) => before < after);
  if (difference === undefined) return undefined;
  const { nodeId, before, after } = difference;
  return `${before} ${before === 1 ? 'replica was' : 'replicas were'} to go to ${nodeId}, now ${after}`;
}

function countByNode(placements: WorkloadPlan['placements']): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { nodeId } of placements) counts.set(nodeId, (counts.get(nodeId) ?? 0) + 1);
  return counts;
}

function describeSteps(
  { steps: was }: WorkloadPlan,
  { steps: is }: WorkloadPlan,
): string | undefined {
  for (let index = 0; index < Math.max(was.length, is.length); index += 1) {
    const [planned, now] = [was[index], is[index]];
    const step = `step ${index + 1}`;
    if (planned?.description !== now?.description) {
      return `${step} was "${planned?.description ?? 'nothing more'}", it would be "${now?.description ?? 'nothing more'}" now`;
    }
    if (planned?.ready !== now?.ready)
      return `${step} was to leave ${planned?.ready} ready, it would leave ${now?.ready} now`;
    if (planned?.live !== now?.live)
      return `${step} was to leave ${planned?.live} live, it would leave ${now?.live} now`;
  }
  return undefined;
}

function describeWarnings(
  { warnings: was }: Pick<WorkloadPlan, 'warnings'>,
  { warnings: is }: Pick<WorkloadPlan, 'warnings'>,
): string | undefined {
  const [removed] = was.filter((warning) => !is.includes(warning));
  const [added] = is.filter((warning) => !was.includes(warning));
  if (added !== undefined) return `there is a new warning: ${added}`;
  return removed === undefined ? undefined : `a warning no longer applies: ${removed}`;
}

function formatName({ namespace, name }: WorkloadPlan): string {
  return `${namespace}/${name}`;
}
