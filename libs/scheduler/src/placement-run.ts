import type { NodeId } from '@cloudless/base';
import { compareCandidates, NO_DOMAIN, type Candidate } from './candidate.js';
import { couldEverHold, fixedPreferences, nodeFailure } from './filters.js';
import { describeHostPort } from './host-ports.js';
import type { Ledger } from './ledger.js';
import { domainOf, zoneKeyOf, type NodeRecord } from './node.js';
import { firstText } from './order.js';
import { FILTER_OF_RESOURCE, type Failure } from './reasons.js';
import type { FullRequest } from './request.js';
import { firstShortage, plus } from './resources.js';
import {
  scoreTerms,
  totalScore,
  type Preferences,
  type ScoreTerms,
  type ScoreWeights,
} from './score.js';
import {
  addReplicas,
  countIn,
  countOf,
  findReplicas,
  forbiddenDomains,
  letsIn,
  type DomainCount,
  type TermFindings,
} from './workload-terms.js';

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
  readonly affinity: readonly TermFindings[];
  readonly antiAffinity: readonly TermFindings[];
  private readonly forbidden: ReadonlyMap<string, ReadonlySet<string>>;
  private readonly staying: ReadonlyMap<NodeId, number>;
  private readonly zones = new Map<string, DomainCount>();
  private readonly spreadDomains = new Map<string, DomainCount>();
  /** Domains of the declared spread with a node that could hold a replica if it were empty. */
  private readonly eligible = new Set<DomainCount>();

  constructor(
    readonly request: FullRequest,
    private readonly weights: ScoreWeights,
    nodes: ReadonlyMap<NodeId, NodeRecord>,
    private readonly ledger: Ledger,
  ) {
    this.affinity = findReplicas('workloadAffinity', request, ledger, nodes);
    this.antiAffinity = findReplicas('workloadAntiAffinity', request, ledger, nodes);
    this.forbidden = forbiddenDomains(request, ledger, nodes);
    this.staying = ledger.stayingOf(request.workloadId);
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
  book(candidate: Candidate): void {
    candidate.allocated = plus(candidate.allocated, this.request.resources);
    candidate.replicas += 1;
    candidate.takenPort ??= this.request.hostPorts[0];
    candidate.onNode += 1;
    candidate.inZone.count += 1;
    if (candidate.inSpread !== NO_SPREAD) candidate.inSpread.count += 1;
    this.refresh(candidate);
    this.affinity.forEach((findings, index) =>
      this.bookTerm(findings, candidate, 'affinityDomains', index),
    );
    this.antiAffinity.forEach((findings, index) =>
      this.bookTerm(findings, candidate, 'antiAffinityDomains', index),
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

  private toCandidate(record: NodeRecord): Candidate {
    const { request } = this;
    const failure = nodeFailure(record, request);
    const { allocated, replicas } = this.ledger.bookedOn(record.id);
    const onNode = this.staying.get(record.id) ?? 0;
    const inZone = countIn(this.zones, zoneKeyOf(record));
    const inSpread = this.spreadDomainOf(record);
    inZone.count += onNode;
    if (inSpread !== NO_SPREAD) inSpread.count += onNode;
    if (failure === undefined && couldEverHold(record, request)) this.eligible.add(inSpread);
    return {
      record,
      nodeFailure: failure,
      forbiddenBy: this.forbiddenTopology(record),
      inZone,
      inSpread,
      affinityDomains: this.affinity.map((findings) => countOf(findings, record)),
      antiAffinityDomains: this.antiAffinity.map((findings) => countOf(findings, record)),
      fixedPreferences: fixedPreferences(record, request),
      allocated,
      replicas,
      takenPort: this.ledger.takenPort(record.id, request.hostPorts),
      onNode,
      failure,
      terms: NO_SCORE,
      score: 0,
    };
  }

  private spreadDomainOf(record: NodeRecord): DomainCount {
    if (this.request.spread === undefined) return NO_SPREAD;
    const domain = domainOf(record, this.request.spread.topology);
    return domain === undefined ? NO_DOMAIN : countIn(this.spreadDomains, domain);
  }

  private forbiddenTopology(record: NodeRecord): string | undefined {
    const topologies: string[] = [];
    for (const [topology, domains] of this.forbidden) {
      const domain = domainOf(record, topology);
      if (domain !== undefined && domains.has(domain)) topologies.push(topology);
    }
    return firstText(topologies);
  }

  /**
   * Recomputes the failure and the score of a candidate. Its replica counts are shared objects and
   * already current.
   */
  private refresh(candidate: Candidate): void {
    candidate.failure =
      candidate.nodeFailure ?? this.roomFailure(candidate) ?? this.companyFailure(candidate);
    candidate.terms = scoreTerms(
      candidate.record,
      candidate.allocated,
      this.request,
      this.preferencesOf(candidate),
    );
    candidate.score = totalScore(candidate.terms, this.weights);
  }

  private roomFailure({ record, allocated, replicas, takenPort }: Candidate): Failure | undefined {
    if (replicas >= record.maxReplicas) return { filter: 'replicas' };
    const short = firstShortage(this.request.resources, record.allocatable, allocated);
    if (short !== undefined) return { filter: FILTER_OF_RESOURCE[short] };
    return takenPort && { filter: 'hostPort', detail: describeHostPort(takenPort) };
  }

  private companyFailure({
    affinityDomains,
    antiAffinityDomains,
    forbiddenBy,
  }: Candidate): Failure | undefined {
    const alone = this.affinity.filter(
      (findings, index) => isRequired(findings) && !letsIn(findings, affinityDomains[index]),
    );
    const missing = firstText(alone.map(({ term }) => term.topology));
    if (missing !== undefined) return { filter: 'workloadAffinity', detail: missing };
    const clashes = this.antiAffinity.filter(
      (findings, index) => isRequired(findings) && isOccupied(antiAffinityDomains[index]),
    );
    const topologies = clashes.map(({ term }) => term.topology);
    const clashing = firstText(
      forbiddenBy === undefined ? topologies : [...topologies, forbiddenBy],
    );
    return clashing === undefined
      ? undefined
      : { filter: 'workloadAntiAffinity', detail: clashing };
  }

  private preferencesOf({
    fixedPreferences,
    affinityDomains,
    antiAffinityDomains,
  }: Candidate): Preferences {
    const weightOf = (
      findings: readonly TermFindings[],
      domains: readonly (DomainCount | undefined)[],
    ): number =>
      findings.reduce(
        (sum, { term }, index) =>
          sum + (term.mode === 'preferred' && isOccupied(domains[index]) ? term.weight : 0),
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
  private bookTerm(
    findings: TermFindings,
    placed: Candidate,
    side: 'affinityDomains' | 'antiAffinityDomains',
    index: number,
  ): void {
    const domain = placed[side][index];
    if (!findings.describesItself || domain === undefined) return;
    const wasFirstOfAll = findings.occupied === 0;
    const wasFirst = domain.count === 0;
    addReplicas(findings, domain, 1);
    if (!wasFirst) return;
    for (const candidate of this.candidates)
      if (wasFirstOfAll || candidate[side][index] === domain) this.refresh(candidate);
  }
}

function isRequired({ term }: TermFindings): boolean {
  return term.mode === 'required';
}

function isOccupied(domain: DomainCount | undefined): boolean {
  return domain !== undefined && domain.count > 0;
}

/** A node in no domain is always full: its count is Infinity, which is not below any ceiling. */
function isFull({ inSpread }: Candidate, ceiling: number | undefined): boolean {
  return ceiling !== undefined && inSpread.count >= ceiling;
}
