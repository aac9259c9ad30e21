import type { NodeId } from '@cloudless/base';
import { matchesAll, toLabelMap, type LabelMap } from './labels.js';
import type { Ledger } from './ledger.js';
import { domainOf, type NodeRecord } from './node.js';
import type { FullRequest, WorkloadTerm } from './request.js';

/** Replicas that count in one domain; shared by all nodes of the domain. */
export interface DomainCount {
  count: number;
}

/** Where a term of workload affinity or anti-affinity finds replicas. */
export interface TermFindings {
  readonly term: WorkloadTerm;
  /** The request is itself what the term describes, so its own placements count too. */
  readonly describesItself: boolean;
  /** By domain; those without a replica may be missing. */
  readonly domains: Map<string, DomainCount>;
  /** How many domains have a replica. */
  occupied: number;
}

/**
 * Looks up where each term finds replicas. Leaving ones still repel, as they still run; they
 * attract nothing, as whoever followed them would soon be alone.
 */
export function findReplicas(
  kind: 'workloadAffinity' | 'workloadAntiAffinity',
  request: FullRequest,
  ledger: Ledger,
  nodes: ReadonlyMap<NodeId, NodeRecord>,
): TermFindings[] {
  return request[kind].map((term) => {
    const describesItself = describes(
      term,
      request.namespace,
      request.namespace,
      toLabelMap(request.labels),
    );
    const findings: TermFindings = { term, describesItself, domains: new Map(), occupied: 0 };
    for (const group of ledger.allGroups()) {
      if (!describes(term, request.namespace, group.namespace, group.labels)) continue;
      for (const [nodeId, { staying, leaving }] of group.perNode) {
        const record = nodes.get(nodeId);
        const domain = record && countOf(findings, record);
        const found = kind === 'workloadAffinity' ? staying : staying + leaving;
        if (domain !== undefined && found > 0) addReplicas(findings, domain, found);
      }
    }
    return findings;
  });
}

/** The count of one domain, 0 at first. */
export function countIn(counts: Map<string, DomainCount>, domain: string): DomainCount {
  const known = counts.get(domain);
  if (known !== undefined) return known;
  const fresh = { count: 0 };
  counts.set(domain, fresh);
  return fresh;
}

/** The count of the node's domain for a term; undefined when the node is in none. */
export function countOf(findings: TermFindings, record: NodeRecord): DomainCount | undefined {
  const domain = domainOf(record, findings.term.topology);
  return domain === undefined ? undefined : countIn(findings.domains, domain);
}

/** Adds replicas to a domain. */
export function addReplicas(findings: TermFindings, domain: DomainCount, replicas: number): void {
  if (domain.count === 0) findings.occupied += 1;
  domain.count += replicas;
}

/**
 * A required affinity term lets a replica into `domain`: one is there, or it would be the first of
 * all and describes itself.
 */
export function letsIn(findings: TermFindings, domain: DomainCount | undefined): boolean {
  if (domain === undefined) return false;
  return domain.count > 0 || (findings.describesItself && findings.occupied === 0);
}

/** Domains, by topology, that replicas already placed forbid to the request. */
export function forbiddenDomains(
  request: FullRequest,
  ledger: Ledger,
  nodes: ReadonlyMap<NodeId, NodeRecord>,
): Map<string, Set<string>> {
  const forbidden = new Map<string, Set<string>>();
  const labels = toLabelMap(request.labels);
  for (const group of ledger.allGroups()) {
    for (const term of group.repels) {
      if (!describes(term, group.namespace, request.namespace, labels)) continue;
      const domains = forbidden.get(term.topology) ?? new Set();
      forbidden.set(term.topology, domains);
      for (const nodeId of group.perNode.keys()) {
        const record = nodes.get(nodeId);
        const domain = record && domainOf(record, term.topology);
        if (domain !== undefined) domains.add(domain);
      }
    }
  }
  return forbidden;
}

/** Whether a term declared in `ownNamespace` speaks of a workload of `namespace` with `labels`. */
function describes(
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
