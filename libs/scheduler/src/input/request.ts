import type { WorkloadId } from '@cloudless/base';
import { checkHostPorts, sortPorts, type SchedulerHostPort } from './host-ports.js';
import { checkRequirements, type LabelRequirement, type Labels } from './labels.js';
import { Problems } from './problems.js';
import { checkAmounts, toResources, type ResourceAmounts, type Resources } from './resources.js';
import { checkTolerations, type Toleration } from './taints.js';

/** `required` terms filter nodes. `preferred` terms change the score by their weight, 1 to 100. */
export type TermMode =
  { readonly mode: 'required' } | { readonly mode: 'preferred'; readonly weight: number };

/** Matches nodes whose labels meet all `requirements`. */
export type NodeTerm = TermMode & { readonly requirements: readonly LabelRequirement[] };

/**
 * Matches domains that hold a replica of a workload whose labels meet all of `selector`. An empty
 * selector matches every workload.
 */
export type WorkloadTerm = TermMode & {
  readonly selector: readonly LabelRequirement[];
  /** `node`, `zone`, `region` or a node label key. */
  readonly topology: string;
  /** Namespaces of the matched workloads. Absent or empty: the workload's own namespace. */
  readonly namespaces?: readonly string[];
};

/** Distribution of the workload's replicas over topology domains. */
export interface Spread {
  /** `node`, `zone`, `region` or a node label key. */
  readonly topology: string;
  /**
   * `required`: a domain is full when one more replica would put it more than `maxSkew` above the
   * emptiest eligible domain, and a node in no domain is excluded. `preferred`: replicas go to the
   * emptiest domain with free capacity; `maxSkew` is not enforced.
   */
  readonly mode: 'required' | 'preferred';
  /** At least 1. Default: 1. */
  readonly maxSkew?: number;
}

/** Requirements and preferences of one replica of a workload. Absent lists are empty. */
export interface PlacementRequest {
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  /** Labels by which workload affinity terms, including the workload's own, match this workload. */
  readonly labels?: Labels;
  /** Resources that each replica reserves. */
  readonly resources: ResourceAmounts;
  /**
   * 0 to 1000, default 50. Neither filters nor scores use the priority: a caller with several
   * requests places those with higher priority first. `Cluster.preempt` evicts lower priorities.
   */
  readonly priority?: number;
  /** Regions in order of preference. Absent or empty: any region. */
  readonly regions?: readonly string[];
  /** Zones of these regions, in any order. Absent or empty: any zone. */
  readonly zones?: readonly string[];
  /**
   * `required` (default): nodes in other regions and zones are excluded. `preferred`: such nodes
   * have a lower score.
   */
  readonly locality?: 'required' | 'preferred';
  /** Labels and values that a node must have. */
  readonly nodeSelector?: Labels;
  /** Each required term must match the node. Write alternatives as several values of one `In`. */
  readonly nodeAffinity?: readonly NodeTerm[];
  /** No required term may match the node. */
  readonly nodeAntiAffinity?: readonly NodeTerm[];
  /**
   * Each required term must match a replica in the node's domain. While no replica matches, a
   * workload that matches its own term may start in any domain.
   */
  readonly workloadAffinity?: readonly WorkloadTerm[];
  /**
   * No required term may match a replica in the node's domain. The terms also exclude later
   * replicas of other workloads: see `Reservation.workloadAntiAffinity`.
   */
  readonly workloadAntiAffinity?: readonly WorkloadTerm[];
  readonly tolerations?: readonly Toleration[];
  /** Absent: preferred spread over zones, then nodes. */
  readonly spread?: Spread;
  /** Capabilities that the node must have. */
  readonly capabilities?: readonly string[];
  /** Ports of the node that each replica holds. Each port is available once per node. */
  readonly hostPorts?: readonly SchedulerHostPort[];
}

/** A request with all defaults filled in. */
export type FullRequest = Required<Omit<PlacementRequest, 'resources' | 'spread'>> & {
  readonly resources: Resources;
  readonly spread: Required<Spread> | undefined;
};

/**
 * Checks a request and fills in the defaults.
 * @throws InvalidInputError naming every invalid field.
 */
export function toFullRequest(request: PlacementRequest): FullRequest {
  const { spread, ...given } = request;
  const full: FullRequest = {
    labels: {},
    priority: 50,
    regions: [],
    zones: [],
    locality: 'required',
    nodeSelector: {},
    nodeAffinity: [],
    nodeAntiAffinity: [],
    workloadAffinity: [],
    workloadAntiAffinity: [],
    tolerations: [],
    capabilities: [],
    ...given,
    hostPorts: sortPorts(given.hostPorts),
    resources: toResources(given.resources),
    spread: spread === undefined ? undefined : { maxSkew: 1, ...spread },
  };
  checkRequest(full);
  return full;
}

function checkRequest(request: FullRequest): void {
  const problems = new Problems();
  problems.requireNotEmpty('workloadId', request.workloadId);
  checkAmounts(problems, 'resources', request.resources);
  problems.requireWholeNumber('priority', request.priority, 0, 1000);
  problems.requireOneOf('locality', request.locality, ['required', 'preferred']);
  for (const path of ['nodeAffinity', 'nodeAntiAffinity'] as const)
    checkNodeTerms(problems, path, request[path]);
  for (const path of ['workloadAffinity', 'workloadAntiAffinity'] as const)
    checkWorkloadTerms(problems, path, request[path]);
  checkTolerations(problems, 'tolerations', request.tolerations);
  checkHostPorts(problems, 'hostPorts', request.hostPorts);
  if (request.spread !== undefined) {
    problems.requireNotEmpty('spread.topology', request.spread.topology);
    problems.requireOneOf('spread.mode', request.spread.mode, ['required', 'preferred']);
    problems.requireWholeNumber('spread.maxSkew', request.spread.maxSkew, 1);
  }
  problems.throwIfAny();
}

function checkNodeTerms(problems: Problems, path: string, terms: readonly NodeTerm[]): void {
  terms.forEach((term, index) => {
    checkTermMode(problems, `${path}[${index}]`, term);
    checkRequirements(problems, `${path}[${index}].requirements`, term.requirements);
  });
}

/** Adds a problem for each invalid term of workload affinity or anti-affinity. */
export function checkWorkloadTerms(
  problems: Problems,
  path: string,
  terms: readonly WorkloadTerm[],
): void {
  terms.forEach((term, index) => {
    checkTermMode(problems, `${path}[${index}]`, term);
    problems.requireNotEmpty(`${path}[${index}].topology`, term.topology);
    checkRequirements(problems, `${path}[${index}].selector`, term.selector);
  });
}

function checkTermMode(problems: Problems, path: string, term: TermMode): void {
  problems.requireOneOf(`${path}.mode`, term.mode, ['required', 'preferred']);
  if (term.mode === 'preferred') problems.requireWholeNumber(`${path}.weight`, term.weight, 1, 100);
}
