import type { NodeId } from '@cloudless/base';
import { listReasons } from '../filters/pipeline.js';
import type { SchedulerNode } from '../input/node.js';
import type { PlacementRequest } from '../input/request.js';
import { describeAmount, describeCustomAmount } from '../input/units.js';
import { compareNumbers, compareText } from '../order.js';
import type { Candidate } from './candidate.js';
import { applyFixes, findFix, type PlacementFix, type PricedFix } from './placement-fix.js';
import type { PlacementRun } from './placement-run.js';

/** The smallest change after which one replica fits. */
export interface Suggestion {
  /** The node on which the replica fits after the change. */
  readonly nodeId: NodeId;
  /** Changes of the request and of this node, all of them needed. At least one. */
  readonly fixes: readonly PlacementFix[];
  /** Names of all known zones of the cluster, in alphabetical order. */
  readonly zones: readonly string[];
  /** Names of all known regions of the cluster, in alphabetical order. */
  readonly regions: readonly string[];
}

/**
 * Most proposals that are tried. A proposal seldom fails: only when the changed request counts its
 * spread over other domains than before.
 */
export const MAX_SUGGESTION_TRIALS = 8;

/**
 * Finds the node that needs the smallest change.
 * @param fits - Returns true when the changed node could run a replica of the changed request.
 */
export function suggestChange(
  run: PlacementRun,
  fits: (node: SchedulerNode, request: PlacementRequest) => boolean,
): Suggestion | undefined {
  const { candidates, request } = run;
  if (candidates.some((candidate) => run.failureOf(candidate) === undefined)) return undefined;
  const proposals = candidates
    .flatMap((candidate) => {
      const fixes = listFixes(candidate, run);
      if (fixes === undefined) return [];
      return [{ candidate, fixes, cost: fixes.reduce((sum, { cost }) => sum + cost, 0) }];
    })
    .sort(
      (a, b) =>
        compareNumbers(a.cost, b.cost) || compareText(a.candidate.node.id, b.candidate.node.id),
    )
    .slice(0, MAX_SUGGESTION_TRIALS);
  const { spread, ...rest } = request;
  const asGiven: PlacementRequest = { ...rest, ...(spread === undefined ? {} : { spread }) };
  for (const { candidate, fixes } of proposals) {
    const changes = fixes.map(({ fix }) => fix);
    const changed = applyFixes(asGiven, candidate.node.node, changes);
    if (!fits(changed.node, changed.request)) continue;
    return {
      nodeId: candidate.node.id,
      fixes: changes,
      zones: listNames(candidates.map(({ node }) => node.zone)),
      regions: listNames(candidates.map(({ node }) => node.region)),
    };
  }
  return undefined;
}

/** Returns a fix for each reason of a candidate; undefined when a reason has none. */
function listFixes(candidate: Candidate, run: PlacementRun): readonly PricedFix[] | undefined {
  const fixes = new Map<string, PricedFix>();
  for (const reason of listReasons(candidate, run)) {
    const priced = findFix(reason, candidate, run.request.resources);
    if (priced === undefined) return undefined;
    fixes.set(JSON.stringify(priced.fix), priced);
  }
  return [...fixes.values()];
}

const listNames = (names: readonly string[]): readonly string[] =>
  [...new Set(names)].filter((name) => name !== '').sort();

/**
 * Describes a suggestion in one sentence: `would fit on agent-2 with at most 14Gi memory`, `would
 * fit on agent-1 in zone zone-a; zones of this cluster: zone-a, zone-b`.
 */
export function describeSuggestion(suggestion: Suggestion): string {
  const { nodeId, fixes } = suggestion;
  const phrases = fixes.flatMap((fix) => describeFix(fix, fixes));
  const last = phrases.at(-1) ?? '';
  const before = phrases.slice(0, -1).join(', ');
  const list = before === '' ? last : `${before} and ${last}`;
  const notes = fixes.flatMap((fix) => describeHow(fix, suggestion));
  return [`would fit on ${nodeId} ${list}`, ...new Set(notes)].join('; ');
}

/** Returns the phrase of a fix; none for a fix that another one contains. */
function describeFix(fix: PlacementFix, all: readonly PlacementFix[]): readonly string[] {
  switch (fix.kind) {
    case 'lowerResource':
      return fix.atMost === 0
        ? ['without GPUs']
        : [`with at most ${describeAmount(fix.field, fix.atMost)}`];
    case 'lowerCustomResource':
      return fix.atMost === 0
        ? [`without ${fix.name}`]
        : [`with at most ${describeCustomAmount(fix.name, fix.atMost)}`];
    case 'allowRegion':
      return [`in region ${fix.domain}`];
    case 'allowZone':
      return [`in zone ${fix.domain}`];
    case 'preferLocality':
      return ['with locality "preferred" instead of "required"'];
    case 'addCapability':
      return describeCapability(fix.capability, all);
    case 'addLabel':
      return [`with the node label ${fix.label}`];
    case 'preferNodeTerm':
      return [`without requiring ${fix.term}`];
    case 'tolerateTaint':
      return [`with a toleration of ${fix.taint}`];
    case 'freeHostPort':
      return [`without host port ${fix.port}`];
    case 'preferWorkloadTerms':
      return [`with a preferred instead of a required affinity over ${fix.topology}`];
    case 'preferSpread':
      return [`with a preferred instead of a required spread over ${fix.topology}`];
    case 'uncordon':
      return ['after the node is uncordoned'];
  }
}

function describeCapability(capability: string, all: readonly PlacementFix[]): readonly string[] {
  const addsContainers = all.some(
    (fix) => fix.kind === 'addCapability' && fix.capability === 'runtime.cri',
  );
  if (capability === 'runtime.cri') return ['with a container runtime (containerd)'];
  // A container runtime brings limits with it.
  if (capability.startsWith('limits.') && addsContainers) return [];
  return [`with the capability ${capability}`];
}

/** Returns how a user makes a change, where the phrase does not say it. */
function describeHow(fix: PlacementFix, { zones, regions }: Suggestion): readonly string[] {
  switch (fix.kind) {
    case 'allowRegion':
      return [`regions of this cluster: ${regions.join(', ')}`];
    case 'allowZone':
      return [`zones of this cluster: ${zones.join(', ')}`];
    case 'addCapability':
      if (fix.capability === 'runtime.cri') return ['or use command instead of image'];
      return fix.capability === 'runtime.process' ? ['or use image instead of command'] : [];
    default:
      return [];
  }
}
