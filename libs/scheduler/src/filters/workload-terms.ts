import type { NodeId } from '@cloudless/base';
import { matchesAll, toLabelMap, type LabelMap } from '../input/labels.js';
import type { ReplicaGroup } from '../reservations/replica-group.js';
import { domainOf, type IndexedNode } from '../input/node.js';
import type { FullRequest, WorkloadTerm } from '../input/request.js';

/** Replica count of one domain. One object is shared by all nodes of the domain. */
export interface DomainCount {
  count: number;
}

/** Replica counts by domain for one term of workload affinity or anti-affinity. */
export interface TermMatches {
  readonly term: WorkloadTerm;
  /**
   * True when the term matches the request's own workload, so that placements of the request count
   * too.
   */
  readonly matchesOwnWorkload: boolean;
  /** Replica counts by domain. Domains without a replica may be missing. */
  readonly domains: Map<string, DomainCount>;
  /** Number of domains that have a replica. */
  occupied: number;
}

/** Reservations by group of equal replicas. */
export interface ReplicaGroups {
  allGroups(): Iterable<ReplicaGroup>;
}

/**
 * Counts the matching replicas by domain for each term of the request. Leaving replicas count for
 * anti-affinity, because they still run, and not for affinity, because they are about to end.
 */
export function countMatchingReplicas(
  kind: 'workloadAffinity' | 'workloadAntiAffinity',
  request: FullRequest,
  ledger: ReplicaGroups,
  nodes: ReadonlyMap<NodeId, IndexedNode>,
): TermMatches[] {
  return request[kind].map((term) => {
    const matchesOwnWorkload = matchesWorkload(
      term,
      request.namespace,
      request.namespace,
      toLabelMap(request.labels),
    );
    const matches: TermMatches = {
      term,
      matchesOwnWorkload,
      domains: new Map(),
      occupied: 0,
    };
    for (const group of ledger.allGroups()) {
      if (!matchesWorkload(term, request.namespace, group.namespace, group.labels)) continue;
      for (const [nodeId, { staying, leaving }] of group.perNode) {
        const node = nodes.get(nodeId);
        const domain = node && domainCountOf(matches, node);
        const replicas = kind === 'workloadAffinity' ? staying : staying + leaving;
        if (domain !== undefined && replicas > 0) addReplicas(matches, domain, replicas);
      }
    }
    return matches;
  });
}

/** Returns the count object of a domain; creates one with count 0 when there is none. */
export function getOrCreateCount(counts: Map<string, DomainCount>, domain: string): DomainCount {
  const existing = counts.get(domain);
  if (existing !== undefined) return existing;
  const created = { count: 0 };
  counts.set(domain, created);
  return created;
}

/** Returns the count of the node's domain for a term; undefined when the node is in no domain. */
export function domainCountOf(matches: TermMatches, record: IndexedNode): DomainCount | undefined {
  const domain = domainOf(record, matches.term.topology);
  return domain === undefined ? undefined : getOrCreateCount(matches.domains, domain);
}

/** Adds replicas to the count of a domain. */
export function addReplicas(matches: TermMatches, domain: DomainCount, replicas: number): void {
  if (domain.count === 0) matches.occupied += 1;
  domain.count += replicas;
}

/**
 * Returns true when a required affinity term allows a replica in `domain`: the domain has a
 * matching replica, or no domain has a matching replica and the term matches the request's own
 * workload.
 */
export function satisfiesAffinity(matches: TermMatches, domain: DomainCount | undefined): boolean {
  if (domain === undefined) return false;
  return domain.count > 0 || (matches.matchesOwnWorkload && matches.occupied === 0);
}

export function isRequired({ term }: TermMatches): boolean {
  return term.mode === 'required';
}

/** Returns true when the domain has a matching replica. False for a node in no domain. */
export function hasReplica(domain: DomainCount | undefined): boolean {
  return domain !== undefined && domain.count > 0;
}

/**
 * Returns the domains, by topology, from which anti-affinity terms of existing replicas exclude the
 * request.
 */
export function findExcludedDomains(
  request: FullRequest,
  ledger: ReplicaGroups,
  nodes: ReadonlyMap<NodeId, IndexedNode>,
): Map<string, Set<string>> {
  const excluded = new Map<string, Set<string>>();
  const labels = toLabelMap(request.labels);
  for (const group of ledger.allGroups()) {
    for (const term of group.repels) {
      if (!matchesWorkload(term, group.namespace, request.namespace, labels)) continue;
      const domains = excluded.get(term.topology) ?? new Set();
      excluded.set(term.topology, domains);
      for (const nodeId of group.perNode.keys()) {
        const node = nodes.get(nodeId);
        const domain = node && domainOf(node, term.topology);
        if (domain !== undefined) domains.add(domain);
      }
    }
  }
  return excluded;
}

/**
 * Returns true when a term declared in `ownNamespace` matches a workload in `namespace` with
 * `labels`.
 */
export function matchesWorkload(
  term: WorkloadTerm,
  ownNamespace: string,
  namespace: string,
  labels: LabelMap,
): boolean {
  const { namespaces = [] } = term;
  const inScope =
    namespaces.length === 0 ? namespace === ownNamespace : namespaces.includes(namespace);
  return inScope && matchesAll(term.selector, labels);
}
