import type { NodeId } from '@cloudless/base';
import type { FilterRun } from '../filters/filter.js';
import { fitsWhenEmpty } from '../filters/capacity-filters.js';
import { findCandidateFailure, findNodeFailure } from '../filters/pipeline.js';
import type { Failure } from '../filters/reasons.js';
import { requiredSpread } from '../filters/workload-filters.js';
import {
  addReplicas,
  countMatchingReplicas,
  domainCountOf,
  findExcludedDomains,
  getOrCreateCount,
  type DomainCount,
  type ReplicaGroups,
  type TermMatches,
} from '../filters/workload-terms.js';
import { domainOf, zoneKeyOf, type IndexedNode } from '../input/node.js';
import type { FullRequest } from '../input/request.js';
import { addResources } from '../input/resources.js';
import { smallest } from '../order.js';
import type { Ledger } from '../reservations/ledger.js';
import { sumFixedPreferences, sumMatchingWeights } from '../scoring/preferences.js';
import {
  computeScore,
  computeScoreTerms,
  type Preferences,
  type ScoreTerms,
  type ScoreWeights,
} from '../scoring/score.js';
import { NO_DOMAIN, type Candidate } from './candidate.js';

/** Count that all nodes share without a declared spread; never changed. */
const NO_SPREAD: DomainCount = { count: 0 };
/** Terms of a candidate before its first refresh. */
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

/** What a run reads of the reservations. */
type PlacementLedger = ReplicaGroups & Pick<Ledger, 'bookingsOn' | 'countStaying' | 'findHeldPort'>;

/**
 * All nodes as candidates of one request, for explanations. The constructor does all lookups. A
 * placement then updates only the chosen node, the counts of its domains, and the nodes of a domain
 * that received its first replica.
 */
export class PlacementRun implements FilterRun {
  readonly candidates: readonly Candidate[];
  readonly affinity: readonly TermMatches[];
  readonly antiAffinity: readonly TermMatches[];
  spreadCeiling: number | undefined;
  /** Domains, by topology, from which existing replicas exclude the request. */
  private readonly excludedDomains: ReadonlyMap<string, ReadonlySet<string>>;
  /** Replicas of the workload by node, without leaving replicas. */
  private readonly stayingReplicas: ReadonlyMap<NodeId, number>;
  /** Replicas of the workload by zone. */
  private readonly zones = new Map<string, DomainCount>();
  /** Replicas of the workload by domain of the declared spread. */
  private readonly spreadDomains = new Map<string, DomainCount>();
  /** Domains of the declared spread with a node that could hold a replica if it were empty. */
  private readonly eligible = new Set<DomainCount>();

  /** @param weights - Undefined when nobody reads scores, which then stay 0. */
  constructor(
    readonly request: FullRequest,
    private readonly weights: ScoreWeights | undefined,
    nodes: ReadonlyMap<NodeId, IndexedNode>,
    private readonly ledger: PlacementLedger,
  ) {
    this.affinity = countMatchingReplicas('workloadAffinity', request, ledger, nodes);
    this.antiAffinity = countMatchingReplicas('workloadAntiAffinity', request, ledger, nodes);
    this.excludedDomains = findExcludedDomains(request, ledger, nodes);
    this.stayingReplicas = ledger.countStaying(request.workloadId);
    this.candidates = Array.from(nodes.values(), (node) => this.toCandidate(node));
    this.candidates.forEach((candidate) => this.refresh(candidate));
    this.spreadCeiling = this.computeSpreadCeiling();
  }

  /** Adds a placement on a candidate for the rest of this run, as if it had been reserved. */
  addPlacement(candidate: Candidate): void {
    candidate.allocated = addResources(candidate.allocated, this.request.resources);
    candidate.replicas += 1;
    candidate.heldPort ??= this.request.hostPorts[0];
    candidate.onNode += 1;
    candidate.inZone.count += 1;
    if (candidate.inSpread !== NO_SPREAD) candidate.inSpread.count += 1;
    this.refresh(candidate);
    this.affinity.forEach((matches, index) =>
      this.countPlacement(matches, candidate, 'affinityDomains', index),
    );
    this.antiAffinity.forEach((matches, index) =>
      this.countPlacement(matches, candidate, 'antiAffinityDomains', index),
    );
    this.spreadCeiling = this.computeSpreadCeiling();
  }

  /**
   * Returns for each candidate, in order, why the next replica does not fit; undefined if it fits.
   */
  listFailures(): readonly (Failure | undefined)[] {
    return this.candidates.map((candidate) => this.failureOf(candidate));
  }

  /** Returns the first reason why the next replica does not fit on a candidate. */
  failureOf(candidate: Candidate): Failure | undefined {
    return candidate.failure ?? requiredSpread.check(candidate, this);
  }

  /**
   * Returns the replica count at which a domain of a required spread is full: the count of the
   * emptiest eligible domain plus `maxSkew`. A domain stays eligible when its nodes are full, and
   * becomes ineligible when all its nodes are excluded.
   * @returns undefined without a required spread, Infinity when no domain is eligible.
   */
  private computeSpreadCeiling(): number | undefined {
    const { spread } = this.request;
    if (spread?.mode !== 'required') return undefined;
    let emptiest = Infinity;
    for (const domain of this.eligible) emptiest = Math.min(emptiest, domain.count);
    return emptiest + spread.maxSkew;
  }

  private toCandidate(node: IndexedNode): Candidate {
    const { request } = this;
    const failure = findNodeFailure({ node }, this);
    const { allocated, replicas } = this.ledger.bookingsOn(node.id);
    const onNode = this.stayingReplicas.get(node.id) ?? 0;
    const inZone = getOrCreateCount(this.zones, zoneKeyOf(node));
    const inSpread = this.spreadDomainOf(node);
    inZone.count += onNode;
    if (inSpread !== NO_SPREAD) inSpread.count += onNode;
    if (failure === undefined && fitsWhenEmpty(node, request)) this.eligible.add(inSpread);
    return {
      node,
      nodeFailure: failure,
      excludedBy: this.findExcludingTopology(node),
      inZone,
      inSpread,
      affinityDomains: this.affinity.map((matches) => domainCountOf(matches, node)),
      antiAffinityDomains: this.antiAffinity.map((matches) => domainCountOf(matches, node)),
      fixedPreferences: sumFixedPreferences(node, request),
      allocated,
      replicas,
      heldPort: this.ledger.findHeldPort(node.id, request.hostPorts),
      onNode,
      failure,
      terms: NO_SCORE,
      score: 0,
    };
  }

  private spreadDomainOf(node: IndexedNode): DomainCount {
    if (this.request.spread === undefined) return NO_SPREAD;
    const domain = domainOf(node, this.request.spread.topology);
    return domain === undefined ? NO_DOMAIN : getOrCreateCount(this.spreadDomains, domain);
  }

  private findExcludingTopology(node: IndexedNode): string | undefined {
    const topologies: string[] = [];
    for (const [topology, domains] of this.excludedDomains) {
      const domain = domainOf(node, topology);
      if (domain !== undefined && domains.has(domain)) topologies.push(topology);
    }
    return smallest(topologies);
  }

  /**
   * Recomputes the failure and the score of a candidate from its replica counts, which are objects
   * that the candidates of a domain share.
   */
  private refresh(candidate: Candidate): void {
    candidate.failure = candidate.nodeFailure ?? findCandidateFailure(candidate, this);
    if (this.weights === undefined) return;
    candidate.terms = computeScoreTerms(
      candidate.node,
      candidate.allocated,
      this.request,
      this.sumPreferences(candidate),
    );
    candidate.score = computeScore(candidate.terms, this.weights);
  }

  private sumPreferences({
    fixedPreferences: { affinityWeight, antiAffinityWeight, untoleratedTaints },
    affinityDomains,
    antiAffinityDomains,
  }: Candidate): Preferences {
    return {
      affinityWeight: affinityWeight + sumMatchingWeights(this.affinity, affinityDomains),
      antiAffinityWeight:
        antiAffinityWeight + sumMatchingWeights(this.antiAffinity, antiAffinityDomains),
      untoleratedTaints,
    };
  }

  /**
   * Counts a placement for a term. The first replica of a domain changes the result for all nodes
   * of the domain, and the first replica at all changes the result for every node.
   * @param side - The domains of the candidates that the term belongs to.
   * @param index - Index of the term in the request.
   */
  private countPlacement(
    matches: TermMatches,
    placed: Candidate,
    side: 'affinityDomains' | 'antiAffinityDomains',
    index: number,
  ): void {
    const domain = placed[side][index];
    if (!matches.matchesOwnWorkload || domain === undefined) return;
    const isFirstAtAll = matches.occupied === 0;
    const isFirstInDomain = domain.count === 0;
    addReplicas(matches, domain, 1);
    if (!isFirstInDomain) return;
    for (const candidate of this.candidates)
      if (isFirstAtAll || candidate[side][index] === domain) this.refresh(candidate);
  }
}
