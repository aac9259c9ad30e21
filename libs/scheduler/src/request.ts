import type { WorkloadId } from '@cloudless/base';
import { checkHostPorts, inPortOrder, type HostPort } from './host-ports.js';
import { checkRequirements, type LabelRequirement, type Labels } from './labels.js';
import { Problems } from './problems.js';
import { checkAmounts, toResources, type ResourceAmounts, type Resources } from './resources.js';
import { checkTolerations, type Toleration } from './taints.js';

/** `required` is a filter, `preferred` only changes the score: by its weight, 1 to 100. */
export type Rule =
  { readonly mode: 'required' } | { readonly mode: 'preferred'; readonly weight: number };

/** Speaks of nodes whose labels meet all `requirements`. */
export type NodeTerm = Rule & { readonly requirements: readonly LabelRequirement[] };

/**
 * Speaks of domains that hold a replica of a workload whose labels meet all of `selector` (an empty
 * one: any workload).
 */
export type WorkloadTerm = Rule & {
  readonly selector: readonly LabelRequirement[];
  /** `node`, `zone`, `region` or a label key of nodes. */
  readonly topology: string;
  /** Whose workloads. Absent or empty: those of the own namespace. */
  readonly namespaces?: readonly string[];
};

/** How the replicas of the workload are to be spread. */
export interface Spread {
  /** `node`, `zone`, `region` or a label key of nodes. */
  readonly topology: string;
  /**
   * `required`: a domain is full when one more replica would put it more than `maxSkew` above the
   * emptiest domain; a node in no domain is excluded. `preferred`: the emptiest domain with room,
   * which keeps any skew that room allows.
   */
  readonly mode: 'required' | 'preferred';
  /** 1 or more, default 1. */
  readonly maxSkew?: number;
}

/** What a replica of a workload needs and wants. Lists left out are empty. */
export interface PlacementRequest {
  readonly workloadId: WorkloadId;
  readonly namespace: string;
  /** The labels by which workload affinity finds this workload, its own included. */
  readonly labels?: Labels;
  /** What each replica books. */
  readonly resources: ResourceAmounts;
  /**
   * 0 to 1000, default 50. No filter and no score: whoever has many requests places the higher ones
   * first.
   */
  readonly priority?: number;
  /** In order of preference. */
  readonly regions?: readonly string[];
  readonly zones?: readonly string[];
  /**
   * `required` (default): other regions and zones are excluded. `preferred`: they only score less.
   */
  readonly locality?: 'required' | 'preferred';
  /** Labels a node must have, with these values. */
  readonly nodeSelector?: Labels;
  /** Each required term must match the node. Alternatives are several values of one `In`. */
  readonly nodeAffinity?: readonly NodeTerm[];
  /** No required term may match the node. */
  readonly nodeAntiAffinity?: readonly NodeTerm[];
  /**
   * Each required term must find a replica in the node's domain. As long as no domain has one, a
   * workload that its own term describes may start anywhere in a domain: else its first replica
   * never could.
   */
  readonly workloadAffinity?: readonly WorkloadTerm[];
  /**
   * No required term may find a replica in the node's domain. Holds both ways: see
   * `Reservation.workloadAntiAffinity`.
   */
  readonly workloadAntiAffinity?: readonly WorkloadTerm[];
  readonly tolerations?: readonly Toleration[];
  /** Absent: softly over zones, then nodes. */
  readonly spread?: Spread;
  /** Capabilities that the node must have, all of them. */
  readonly capabilities?: readonly string[];
  /** Ports of the node that each replica takes: a node has each of them once. */
  readonly hostPorts?: readonly HostPort[];
}

/** The request with its defaults filled in. */
export type FullRequest = Required<Omit<PlacementRequest, 'resources' | 'spread'>> & {
  readonly resources: Resources;
  readonly spread: Required<Spread> | undefined;
};

/** @throws InvalidInputError naming every field that makes no sense. */
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
    hostPorts: inPortOrder(given.hostPorts),
    resources: toResources(given.resources),
    spread: spread === undefined ? undefined : { maxSkew: 1, ...spread },
  };
  checkRequest(full);
  return full;
}

function checkRequest(request: FullRequest): void {
  const problems = new Problems();
  problems.notEmpty('workloadId', request.workloadId);
  checkAmounts(problems, 'resources', request.resources);
  problems.wholeNumber('priority', request.priority, 0, 1000);
  problems.oneOf('locality', request.locality, ['required', 'preferred']);
  for (const path of ['nodeAffinity', 'nodeAntiAffinity'] as const)
    checkNodeTerms(problems, path, request[path]);
  for (const path of ['workloadAffinity', 'workloadAntiAffinity'] as const)
    checkWorkloadTerms(problems, path, request[path]);
  checkTolerations(problems, 'tolerations', request.tolerations);
  checkHostPorts(problems, 'hostPorts', request.hostPorts);
  if (request.spread !== undefined) {
    problems.notEmpty('spread.topology', request.spread.topology);
    problems.oneOf('spread.mode', request.spread.mode, ['required', 'preferred']);
    problems.wholeNumber('spread.maxSkew', request.spread.maxSkew, 1);
  }
  problems.throwIfAny();
}

function checkNodeTerms(problems: Problems, path: string, terms: readonly NodeTerm[]): void {
  terms.forEach((term, index) => {
    checkRule(problems, `${path}[${index}]`, term);
    checkRequirements(problems, `${path}[${index}].requirements`, term.requirements);
  });
}

/** Notes what is wrong with terms of workload affinity or anti-affinity. */
export function checkWorkloadTerms(
  problems: Problems,
  path: string,
  terms: readonly WorkloadTerm[],
): void {
  terms.forEach((term, index) => {
    checkRule(problems, `${path}[${index}]`, term);
    problems.notEmpty(`${path}[${index}].topology`, term.topology);
    checkRequirements(problems, `${path}[${index}].selector`, term.selector);
  });
}

function checkRule(problems: Problems, path: string, rule: Rule): void {
  problems.oneOf(`${path}.mode`, rule.mode, ['required', 'preferred']);
  if (rule.mode === 'preferred') problems.wholeNumber(`${path}.weight`, rule.weight, 1, 100);
}
