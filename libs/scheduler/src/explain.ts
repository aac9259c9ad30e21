import type { NodeId } from '@cloudless/base';
import { compareCandidates, type Candidate } from './candidate.js';
import { describeRequirements } from './labels.js';
import { describeDomain } from './node.js';
import { compareNumbers, compareText } from './order.js';
import type { PlacementRun } from './placement-run.js';
import { describeFailure, type Failure, type PlacementFilter } from './reasons.js';
import type { ResourceField } from './resources.js';
import type { ScoreTerms } from './score.js';
import { describeShortage } from './units.js';

/** Result of all filters and scores for one node and one request. */
export type NodeExplanation = NodeFacts & (NodeFits | NodeFails);

interface NodeFacts {
  readonly nodeId: NodeId;
  readonly score: number;
  readonly terms: ScoreTerms;
  /** Replicas of the workload without leaving ones. Fewer replicas rank before a better score. */
  readonly ofWorkload: {
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

interface NodeFails {
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
  const looks = run.candidates.map((candidate, index) => ({ candidate, failure: failures[index] }));
  looks.sort((a, b) => {
    if ((a.failure === undefined) !== (b.failure === undefined))
      return a.failure === undefined ? -1 : 1;
    if (a.failure === undefined) return compareCandidates(a.candidate, b.candidate);
    return (
      compareNumbers(b.candidate.score, a.candidate.score) ||
      compareText(a.candidate.record.id, b.candidate.record.id)
    );
  });
  return looks.map(({ candidate, failure }) => ({
    ...factsOf(run, candidate),
    ...(failure === undefined
      ? { fits: true as const }
      : {
          fits: false as const,
          filter: failure.filter,
          detail: describeOn(run, candidate, failure),
        }),
  }));
}

function factsOf(
  { request }: PlacementRun,
  { record, score, terms, onNode, inZone, inSpread }: Candidate,
): NodeFacts {
  const inSpreadDomain =
    request.spread !== undefined && Number.isFinite(inSpread.count)
      ? { inSpreadDomain: inSpread.count }
      : {};
  return {
    nodeId: record.id,
    score,
    terms,
    ofWorkload: { onNode, inZone: inZone.count, ...inSpreadDomain },
  };
}

/** Describes one failure on one node as a sentence fragment. */
function describeOn(
  run: PlacementRun,
  candidate: Candidate,
  { filter, detail = '' }: Failure,
): string {
  const { request } = run;
  const { record } = candidate;
  const shortOf = (field: ResourceField): string =>
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
      return `is in ${describeDomain(record, 'region')}, needs ${oneOf(request.regions)}`;
    case 'zone':
      return `is in ${describeDomain(record, 'zone')}, needs ${oneOf([...request.zones].sort())}`;
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
      return shortOf('cpuMillis');
    case 'memory':
      return shortOf('memoryBytes');
    case 'storage':
      return shortOf('storageBytes');
    case 'bandwidth':
      return shortOf('bandwidthBps');
    case 'gpu':
      return shortOf('gpus');
    case 'hostPort':
      return describeFailure({ filter, detail });
    case 'workloadAffinity':
      return `needs a replica of ${selectors(run.affinity, detail)} in the same ${detail}, none in ${describeDomain(record, detail)}`;
    case 'workloadAntiAffinity':
      return describeClash(run, candidate, detail);
    case 'spread':
      return describeSkew(run, candidate);
  }
}

function describeClash(
  run: PlacementRun,
  { record, forbiddenBy }: Candidate,
  topology: string,
): string {
  const where = describeDomain(record, topology);
  return forbiddenBy === topology
    ? `the anti-affinity of a replica in ${where} excludes this workload`
    : `anti-affinity to ${selectors(run.antiAffinity, topology)}, which has a replica in ${where}`;
}

function describeSkew(run: PlacementRun, { record, inSpread }: Candidate): string {
  const { topology, maxSkew } = run.request.spread ?? { topology: '', maxSkew: 1 };
  const where = describeDomain(record, topology);
  if (!Number.isFinite(inSpread.count)) return `is in ${where}, but the spread requires one`;
  const emptiest = (run.spreadCeiling() ?? 0) - maxSkew;
  return `replicas: ${inSpread.count} in ${where}, ${emptiest} in the emptiest ${topology}; they may differ by ${maxSkew}`;
}

function selectors(findings: PlacementRun['affinity'], topology: string): string {
  const here = findings.filter(
    ({ term }) => term.mode === 'required' && term.topology === topology,
  );
  return here
    .map(({ term }) => describeRequirements(term.selector))
    .sort()
    .join(' and ');
}

function oneOf(names: readonly string[]): string {
  return names.length === 1 ? names.join() : `one of ${names.join(', ')}`;
}
