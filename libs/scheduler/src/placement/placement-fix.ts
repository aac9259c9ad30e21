import { toResourceField } from '../filters/capacity-filters.js';
import { customAmount } from '../input/custom-resources.js';
import { describeHostPort } from '../input/host-ports.js';
import { describeRequirements } from '../input/labels.js';
import type { SchedulerNode } from '../input/node.js';
import type { NodeTerm, PlacementRequest } from '../input/request.js';
import type { ResourceField, Resources } from '../input/resources.js';
import { describeTaint } from '../input/taints.js';
import { roundDown } from '../input/units.js';
import type { NodeReason } from '../filters/reasons.js';
import type { Candidate } from './candidate.js';

/** One change of a request, or of a node, that ends one reason of a refusal. */
export type PlacementFix =
  | { readonly kind: 'lowerResource'; readonly field: ResourceField; readonly atMost: number }
  | { readonly kind: 'lowerCustomResource'; readonly name: string; readonly atMost: number }
  | { readonly kind: 'allowRegion' | 'allowZone'; readonly domain: string }
  /** The locality becomes `preferred`, for a node of unknown region or zone. */
  | { readonly kind: 'preferLocality' }
  | { readonly kind: 'addCapability'; readonly capability: string }
  /** `label` is `key=value`. */
  | { readonly kind: 'addLabel'; readonly label: string }
  /** `term` is the text of the requirements of a required term, which becomes `preferred`. */
  | { readonly kind: 'preferNodeTerm'; readonly term: string }
  | { readonly kind: 'tolerateTaint'; readonly taint: string }
  /** `port` is `8080` or `53/udp`. */
  | { readonly kind: 'freeHostPort'; readonly port: string }
  /** Required terms over this topology become `preferred`. */
  | { readonly kind: 'preferWorkloadTerms'; readonly topology: string }
  | { readonly kind: 'preferSpread'; readonly topology: string }
  | { readonly kind: 'uncordon' };

/** A fix, and the size of the change: the sum over a node decides which node is proposed. */
export interface PricedFix {
  readonly fix: PlacementFix;
  /** 1 for a small change of the request, more for larger changes and changes of a node. */
  readonly cost: number;
}

/**
 * Returns the fix for one reason on one node; undefined when a user cannot end the reason, for
 * example on a lost node.
 */
export function findFix(
  { filter, detail = '' }: NodeReason,
  { node, allocated, excludedBy }: Candidate,
  resources: Resources,
): PricedFix | undefined {
  switch (filter) {
    case 'lost':
    case 'unreachable':
    case 'quarantined':
    case 'replicas':
    case 'suspendedCapability':
      return undefined;
    case 'cordoned':
      return { fix: { kind: 'uncordon' }, cost: 2 };
    case 'draining':
      return { fix: { kind: 'uncordon' }, cost: 3 };
    case 'region':
    case 'zone':
      return allowDomain(filter, filter === 'region' ? node.region : node.zone);
    case 'capability':
      return { fix: { kind: 'addCapability', capability: detail }, cost: 4 };
    case 'nodeSelector':
      return { fix: { kind: 'addLabel', label: detail }, cost: 2 };
    case 'nodeAffinity':
    case 'nodeAntiAffinity':
      return { fix: { kind: 'preferNodeTerm', term: detail }, cost: 3 };
    case 'taint':
      return { fix: { kind: 'tolerateTaint', taint: detail }, cost: 2 };
    case 'customResource': {
      const [has, held] = [node.allocatable.custom, allocated.custom];
      const atMost = customAmount(has, detail) - customAmount(held, detail);
      const need = customAmount(resources.custom, detail);
      if (atMost < 0) return undefined;
      return {
        fix: { kind: 'lowerCustomResource', name: detail, atMost },
        cost: 2 - atMost / need,
      };
    }
    case 'hostPort':
      return { fix: { kind: 'freeHostPort', port: detail }, cost: 2 };
    case 'workloadAffinity':
    case 'workloadAntiAffinity':
      return excludedBy === detail && filter === 'workloadAntiAffinity'
        ? undefined // the term belongs to another workload
        : { fix: { kind: 'preferWorkloadTerms', topology: detail }, cost: 3 };
    case 'spread':
      return { fix: { kind: 'preferSpread', topology: detail }, cost: 3 };
    default: {
      const field = toResourceField(filter);
      const atMost = roundDown(field, node.allocatable[field] - allocated[field]);
      return lowerResource(field, atMost, resources[field]);
    }
  }
}

function allowDomain(filter: 'region' | 'zone', domain: string): PricedFix {
  if (domain === '') return { fix: { kind: 'preferLocality' }, cost: 3 };
  return filter === 'region'
    ? { fix: { kind: 'allowRegion', domain }, cost: 2 }
    : { fix: { kind: 'allowZone', domain }, cost: 1.5 };
}

/** Returns undefined when nothing would be left of a resource; no GPU is a sensible request. */
function lowerResource(field: ResourceField, atMost: number, need: number): PricedFix | undefined {
  if (atMost < 0 || (atMost === 0 && field !== 'gpus')) return undefined;
  return { fix: { kind: 'lowerResource', field, atMost }, cost: 2 - atMost / need };
}

/** A request and the node that is to run a replica of it. */
interface Pair {
  readonly request: PlacementRequest;
  readonly node: SchedulerNode;
}

/** Applies fixes to a request and a node. */
export function applyFixes(
  request: PlacementRequest,
  node: SchedulerNode,
  fixes: readonly PlacementFix[],
): Pair {
  return fixes.reduce<Pair>(applyFix, { request, node });
}

function applyFix({ request, node }: Pair, fix: PlacementFix): Pair {
  const change = (fields: Partial<PlacementRequest>): Pair => ({
    request: { ...request, ...fields },
    node,
  });
  const changeNode = (fields: Partial<SchedulerNode>): Pair => ({
    request,
    node: { ...node, ...fields },
  });
  switch (fix.kind) {
    case 'lowerResource':
      return change({ resources: { ...request.resources, [fix.field]: fix.atMost } });
    case 'lowerCustomResource': {
      const custom = { ...request.resources.custom, [fix.name]: fix.atMost };
      return change({ resources: { ...request.resources, custom } });
    }
    case 'allowRegion':
      return change({ regions: [...(request.regions ?? []), fix.domain] });
    case 'allowZone':
      return change({ zones: [...(request.zones ?? []), fix.domain] });
    case 'preferLocality':
      return change({ locality: 'preferred' });
    case 'addCapability':
      return changeNode({ capabilities: [...(node.capabilities ?? []), fix.capability] });
    case 'addLabel': {
      const [key = '', ...value] = fix.label.split('=');
      return changeNode({ labels: { ...node.labels, [key]: value.join('=') } });
    }
    case 'preferNodeTerm':
      return change({
        nodeAffinity: preferTerms(request.nodeAffinity, fix.term),
        nodeAntiAffinity: preferTerms(request.nodeAntiAffinity, fix.term),
      });
    case 'tolerateTaint':
      return change({ tolerations: [...(request.tolerations ?? []), tolerate(node, fix.taint)] });
    case 'freeHostPort':
      return change({
        hostPorts: (request.hostPorts ?? []).filter((port) => describeHostPort(port) !== fix.port),
      });
    case 'preferWorkloadTerms': {
      const prefer = <Term extends { readonly topology: string }>(term: Term): Term =>
        term.topology === fix.topology ? { ...term, mode: 'preferred', weight: 100 } : term;
      return change({
        workloadAffinity: (request.workloadAffinity ?? []).map(prefer),
        workloadAntiAffinity: (request.workloadAntiAffinity ?? []).map(prefer),
      });
    }
    case 'preferSpread':
      return change({ spread: { topology: fix.topology, mode: 'preferred' } });
    case 'uncordon':
      return changeNode({
        availability: { ...node.availability, cordoned: false, draining: false },
      });
  }
}

function preferTerms(terms: readonly NodeTerm[] = [], text: string): readonly NodeTerm[] {
  return terms.map((term) =>
    describeRequirements(term.requirements) === text
      ? { mode: 'preferred', weight: 100, requirements: term.requirements }
      : term,
  );
}

function tolerate({ taints = [] }: SchedulerNode, text: string) {
  const taint = taints.find((other) => describeTaint(other) === text);
  const { key = '', value = '', effect = '' } = taint ?? {};
  return { key, operator: 'Equal', value, effect } as const;
}
