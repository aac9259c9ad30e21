import type { NodeId } from '@cloudless/base';
import { compareCandidates, type Candidate } from './candidate.js';
import { describeRequirements } from '../input/labels.js';
import { describeDomain } from '../input/node.js';
import { compareNumbers, compareText } from '../order.js';
import type { PlacementRun } from './placement-run.js';
import { describeFailure, type Failure, type PlacementFilter } from '../filters/reasons.js';
import type { ResourceField } from '../input/resources.js';
import type { ScoreTerms } from '../scoring/score.js';
import { describeShortage } from '../input/units.js';

/** Result of all filters and scores for one node and one request. */
export type NodeExplanation = NodeExplanationBase & (NodeFits | NodeDoesNotFit);

interface NodeExplanationBase {
  readonly nodeId: NodeId;
  readonly score: number;
  readonly terms: ScoreTerms;
  /** Replicas of the workload without leaving ones. Fewer replicas rank before a better score. */
  readonly workloadReplicas: {
    readonly onNode: number;
    readonly inZone: number;
    /**
     * Count of the node's domain of the declared spread. Absent without a declared spread and for a
     * node in no domain.
     */
    readonly inSpreadDomain?: number;
  };
}

interface NodeFits {
  readonly fits: true;
}

interface NodeDoesNotFit {
  readonly fits: false;
  /** First filter that fails, in the order of {@link PLACEMENT_FILTERS}. */
  readonly filter: PlacementFilter;
  /** Reason as a short text, for example `needs 500 m CPU, 200 m free`. */
  readonly detail: string;
}

/**
 * Returns every node: nodes that fit in the order in which `place` would choose them, then the
 * others by score and id.
 */
export function explainNodes(run: PlacementRun): NodeExplanation[] {
  const failures = run.failures();
  const entries = run.candidates.map((candidate, index) => ({
    candidate,
    failure: failures[index],
  }));
  entries.sort((a, b) => {
    if ((a.failure === undefined) !== (b.failure === undefined))
      return a.failure === undefined ? -1 : 1;
    if (a.failure === undefined) return compareCandidates(a.candidate, b.candidate);
    return (
      compareNumbers(b.candidate.score, a.candidate.score) ||
      compareText(a.candidate.record.id, b.candidate.record.id)
    );
  });
  return entries.map(({ candidate, failure }) => ({
    ...describeNode(run, candidate),
    ...(failure === undefined
      ? { fits: true as const }
      : {
          fits: false as const,
          filter: failure.filter,
          detail: describeFailureOnNode(run, candidate, failure),
        }),
  }));
}

function describeNode(
  { request }: PlacementRun,
  { record, score, terms, onNode, inZone, inSpread }: Candidate,
): NodeExplanationBase {
  const inSpreadDomain =
    request.spread !== undefined && Number.isFinite(inSpread.count)
      ? { inSpreadDomain: inSpread.count }
      : {};
  return {
    nodeId: record.id,
    score,
    terms,
    workloadReplicas: { onNode, inZone: inZone.count, ...inSpreadDomain },
  };
}

/** Describes one failure on one node as a sentence fragment. */
function describeFailureOnNode(
  run: PlacementRun,
  candidate: Candidate,
  { filter, detail = '' }: Failure,
): string {
  const { request } = run;
  const { record } = candidate;
  const describeShortageOf = (field: ResourceField): string =>
    describeShortage(
      field,
      request.resources[field],
      Math.max(0, record.allocatable[field] - candidate.allocated[field]),
    );
  switch (filter) {
    case 'lost':
      return 'the node is lost';
    case 'draining':
      return 'the node is being drained';
    case 'cordoned':
      return 'the node is cordoned';
    case 'quarantined':
      return 'the node is quarantined';
    case 'region':
      return `is in ${describeDomain(record, 'region')}, needs ${describeAlternatives(request.regions)}`;
    case 'zone':
      return `is in ${describeDomain(record, 'zone')}, needs ${describeAlternatives([...request.zones].sort())}`;
    case 'capability':
      return `lacks the capability ${detail}`;
    case 'nodeSelector':
      return `lacks the label ${detail}`;
    case 'nodeAffinity':
      return `does not meet ${detail}`;
    case 'nodeAntiAffinity':
      return `matches the anti-affinity ${detail}`;
    case 'taint':
      return `has the taint ${detail}, which is not tolerated`;
    case 'replicas':
      return `holds ${candidate.replicas} replicas of at most ${record.maxReplicas}`;
    case 'cpu':
      return describeShortageOf('cpuMillis');
    case 'memory':
      return describeShortageOf('memoryBytes');
    case 'storage':
      return describeShortageOf('storageBytes');
    case 'bandwidth':
      return describeShortageOf('bandwidthBps');
    case 'gpu':
      return describeShortageOf('gpus');
    case 'hostPort':
      return describeFailure({ filter, detail });
    case 'workloadAffinity':
      return `needs a replica of ${describeSelectors(run.affinity, detail)} in the same ${detail}, none in ${describeDomain(record, detail)}`;
    case 'workloadAntiAffinity':
      return describeAntiAffinity(run, candidate, detail);
    case 'spread':
      return describeSkew(run, candidate);
  }
}

function describeAntiAffinity(
  run: PlacementRun,
  { record, excludedBy }: Candidate,
  topology: string,
): string {
  const domain = describeDomain(record, topology);
  return excludedBy === topology
    ? `the anti-affinity of a replica in ${domain} excludes this workload`
    : `anti-affinity to ${describeSelectors(run.antiAffinity, topology)}, which has a replica in ${domain}`;
}

function describeSkew(run: PlacementRun, { record, inSpread }: Candidate): string {
  const { topology, maxSkew } = run.request.spread ?? { topology: '', maxSkew: 1 };
  const domain = describeDomain(record, topology);
  if (!Number.isFinite(inSpread.count)) return `is in ${domain}, but the spread requires one`;
  const emptiest = (run.spreadCeiling() ?? 0) - maxSkew;
  return `replicas: ${inSpread.count} in ${domain}, ${emptiest} in the emptiest ${topology}; they may differ by ${maxSkew}`;
}

function describeSelectors(findings: PlacementRun['affinity'], topology: string): string {
  const matching = findings.filter(
    ({ term }) => term.mode === 'required' && term.topology === topology,
  );
  return matching
    .map(({ term }) => describeRequirements(term.selector))
    .sort()
    .join(' and ');
}

function describeAlternatives(names: readonly string[]): string {
  return names.length === 1 ? names.join() : `one of ${names.join(', ')}`;
}
