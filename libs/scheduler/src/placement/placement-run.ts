import type { NodeId } from '@cloudless/base';
import { compareCandidates, NO_DOMAIN, type Candidate } from './candidate.js';
import { fitsWhenEmpty, sumFixedPreferences, nodeFailure } from '../filters/filters.js';
import { describeHostPort } from '../input/host-ports.js';
import type { Ledger } from '../reservations/ledger.js';
import { domainOf, zoneKeyOf, type IndexedNode } from '../input/node.js';
import { smallest } from '../order.js';
import { FILTER_OF_RESOURCE, type Failure } from '../filters/reasons.js';
import type { FullRequest } from '../input/request.js';
import { findShortage, addResources } from '../input/resources.js';
import {
  computeScoreTerms,
  computeScore,
  type Preferences,
  type ScoreTerms,
  type ScoreWeights,
} from '../scoring/score.js';
import {
  addReplicas,
  getOrCreateCount,
  domainCountOf,
  countMatchingReplicas,
  findExcludedDomains,
  satisfiesAffinity,
  type DomainCount,
  type TermMatches,
} from '../filters/workload-terms.js';

const NO_SPREAD: DomainCount = { count: 0 };
const NO_SCORE: ScoreTerms = {
  locality: 0,
  reliability: 0,
  cost: 0,
  utilisation: 0,
  networkPenalty: 0,
  affinity: 0,
  antiAffinity: 0,
  taints: 0,
};

/**
 * All nodes as candidates of one request. The constructor does all lookups. A placement then
 * updates only the chosen node, the counts of its domains, and the nodes of a domain that received
 * its first replica.
 */
export class PlacementRun {
  readonly candidates: readonly Candidate[];
  readonly affinity: readonly TermMatches[];
  readonly antiAffinity: readonly TermMatches[];
  private readonly excludedDomains: ReadonlyMap<string, ReadonlySet<string>>;
  private readonly stayingReplicas: ReadonlyMap<NodeId, number>;
  private readonly zones = new Map<string, DomainCount>();
  private readonly spreadDomains = new Map<string, DomainCount>();
  /** Domains of the declared spread with a node that could hold a replica if it were empty. */
  private readonly eligible = new Set<DomainCount>();

  constructor(
    readonly request: FullRequest,
    private readonly weights: ScoreWeights,
    nodes: ReadonlyMap<NodeId, IndexedNode>,
    private readonly ledger: Ledger,
  ) {
    this.affinity = countMatchingReplicas('workloadAffinity', request, ledger, nodes);
    this.antiAffinity = countMatchingReplicas('workloadAntiAffinity', request, ledger, nodes);
    this.excludedDomains = findExcludedDomains(request, ledger, nodes);
    this.stayingReplicas = ledger.countStaying(request.workloadId);
    this.candidates = Array.from(nodes.values(), (record) => this.toCandidate(record));
    this.candidates.forEach((candidate) => this.refresh(candidate));
  }

  /** Returns the candidate for the next replica; undefined when none fits. */
  best(): Candidate | undefined {
    const ceiling = this.spreadCeiling();
    let best: Candidate | undefined;
    for (const candidate of this.candidates) {
      if (candidate.failure !== undefined || isFull(candidate, ceiling)) continue;
      if (best === undefined || compareCandidates(candidate, best) < 0) best = candidate;
    }
    return best;
  }

  /** Counts a placement on a candidate for the rest of this run. */
  addPlacement(candidate: Candidate): void {
    candidate.allocated = addResources(candidate.allocated, this.request.resources);
    candidate.replicas += 1;
    candidate.heldPort ??= this.request.hostPorts[0];
    candidate.onNode += 1;
    candidate.inZone.count += 1;
    if (candidate.inSpread !== NO_SPREAD) candidate.inSpread.count += 1;
    this.refresh(candidate);
    this.affinity.forEach((findings, index) =>
      this.countPlacement(findings, candidate, 'affinityDomains', index),
    );
    this.antiAffinity.forEach((findings, index) =>
      this.countPlacement(findings, candidate, 'antiAffinityDomains', index),
    );
  }

  /** Returns for each candidate why the next replica does not fit; undefined where it fits. */
  failures(): readonly (Failure | undefined)[] {
    const ceiling = this.spreadCeiling();
    return this.candidates.map((candidate) => this.failureOf(candidate, ceiling));
  }

  /** Returns why the next replica does not fit on one candidate; undefined when it fits. */
  failureOf(candidate: Candidate, ceiling = this.spreadCeiling()): Failure | undefined {
    if (candidate.failure !== undefined || !isFull(candidate, ceiling)) return candidate.failure;
    return { filter: 'spread', detail: this.request.spread?.topology ?? '' };
  }

  /**
   * Returns the replica count at which a domain of a required spread is full: the count of the
   * emptiest eligible domain plus `maxSkew`. A domain stays eligible when its nodes are full, and
   * becomes ineligible when all its nodes are excluded.
   * @returns undefined without a required spread, Infinity when no domain is eligible.
   */
  spreadCeiling(): number | undefined {
    const { spread } = this.request;
    if (spread?.mode !== 'required') return undefined;
    let emptiest = Infinity;
    for (const domain of this.eligible) emptiest = Math.min(emptiest, domain.count);
    return emptiest + spread.maxSkew;
  }

  private toCandidate(record: IndexedNode): Candidate {
    const { request } = this;
    const failure = nodeFailure(record, request);
    const { allocated, replicas } = this.ledger.bookingsOn(record.id);
    const onNode = this.stayingReplicas.get(record.id) ?? 0;
    const inZone = getOrCreateCount(this.zones, zoneKeyOf(record));
    const inSpread = this.spreadDomainOf(record);
    inZone.count += onNode;
    if (inSpread !== NO_SPREAD) inSpread.count += onNode;
    if (failure === undefined && fitsWhenEmpty(record, request)) this.eligible.add(inSpread);
    return {
      record,
      nodeFailure: failure,
      excludedBy: this.findExcludingTopology(record),
      inZone,
      inSpread,
      affinityDomains: this.affinity.map((findings) => domainCountOf(findings, record)),
      antiAffinityDomains: this.antiAffinity.map((findings) => domainCountOf(findings, record)),
      fixedPreferences: sumFixedPreferences(record, request),
      allocated,
      replicas,
      heldPort: this.ledger.findHeldPort(record.id, request.hostPorts),
      onNode,
      failure,
      terms: NO_SCORE,
      score: 0,
    };
  }

  private spreadDomainOf(record: IndexedNode): DomainCount {
    if (this.request.spread === undefined) return NO_SPREAD;
    const domain = domainOf(record, this.request.spread.topology);
    return domain === undefined ? NO_DOMAIN : getOrCreateCount(this.spreadDomains, domain);
  }

  private findExcludingTopology(record: IndexedNode): string | undefined {
    const topologies: string[] = [];
    for (const [topology, domains] of this.excludedDomains) {
      const domain = domainOf(record, topology);
      if (domain !== undefined && domains.has(domain)) topologies.push(topology);
    }
    return smallest(topologies);
  }

  /**
   * Recomputes the failure and the score of a candidate. Its replica counts are shared objects and
   * already current.
   */
  private refresh(candidate: Candidate): void {
    candidate.failure =
      candidate.nodeFailure ??
      this.capacityFailure(candidate) ??
      this.workloadAffinityFailure(candidate);
    candidate.terms = computeScoreTerms(
      candidate.record,
      candidate.allocated,
      this.request,
      this.sumPreferences(candidate),
    );
    candidate.score = computeScore(candidate.terms, this.weights);
  }

  private capacityFailure({
    record,
    allocated,
    replicas,
    heldPort,
  }: Candidate): Failure | undefined {
    if (replicas >= record.maxReplicas) return { filter: 'replicas' };
    const short = findShortage(this.request.resources, record.allocatable, allocated);
    if (short !== undefined) return { filter: FILTER_OF_RESOURCE[short] };
    return heldPort && { filter: 'hostPort', detail: describeHostPort(heldPort) };
  }

  private workloadAffinityFailure({
    affinityDomains,
    antiAffinityDomains,
    excludedBy,
  }: Candidate): Failure | undefined {
    const alone = this.affinity.filter(
      (findings, index) =>
        isRequired(findings) && !satisfiesAffinity(findings, affinityDomains[index]),
    );
    const missing = smallest(alone.map(({ term }) => term.topology));
    if (missing !== undefined) return { filter: 'workloadAffinity', detail: missing };
    const clashes = this.antiAffinity.filter(
      (findings, index) => isRequired(findings) && hasReplica(antiAffinityDomains[index]),
    );
    const topologies = clashes.map(({ term }) => term.topology);
    const clashing = smallest(excludedBy === undefined ? topologies : [...topologies, excludedBy]);
    return clashing === undefined
      ? undefined
      : { filter: 'workloadAntiAffinity', detail: clashing };
  }

  private sumPreferences({
    fixedPreferences,
    affinityDomains,
    antiAffinityDomains,
  }: Candidate): Preferences {
    const weightOf = (
      findings: readonly TermMatches[],
      domains: readonly (DomainCount | undefined)[],
    ): number =>
      findings.reduce(
        (sum, { term }, index) =>
          sum + (term.mode === 'preferred' && hasReplica(domains[index]) ? term.weight : 0),
        0,
      );
    return {
      affinityWeight: fixedPreferences.affinityWeight + weightOf(this.affinity, affinityDomains),
      antiAffinityWeight:
        fixedPreferences.antiAffinityWeight + weightOf(this.antiAffinity, antiAffinityDomains),
      untoleratedTaints: fixedPreferences.untoleratedTaints,
    };
  }

  /**
   * Counts a placement for a term. The first replica of a domain changes the result for all nodes
   * of the domain, and the first replica at all changes it for every node.
   */
  private countPlacement(
    findings: TermMatches,
    placed: Candidate,
    side: 'affinityDomains' | 'antiAffinityDomains',
    index: number,
  ): void {
    const domain = placed[side][index];
    if (!findings.matchesOwnWorkload || domain === undefined) return;
    const wasFirstOfAll = findings.occupied === 0;
    const wasFirst = domain.count === 0;
    addReplicas(findings, domain, 1);
    if (!wasFirst) return;
    for (const candidate of this.candidates)
      if (wasFirstOfAll || candidate[side][index] === domain) this.refresh(candidate);
  }
}

function isRequired({ term }: TermMatches): boolean {
  return term.mode === 'required';
}

function hasReplica(domain: DomainCount | undefined): boolean {
  return domain !== undefined && domain.count > 0;
}

/** A node in no domain is always full: its count is Infinity, which is not below any ceiling. */
function isFull({ inSpread }: Candidate, ceiling: number | undefined): boolean {
  return ceiling !== undefined && inSpread.count >= ceiling;
}
