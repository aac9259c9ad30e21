import type { NodeId } from '@cloudless/base';
import type { Placement } from '../../placement/placement.js';
import { countReasons, listReasons } from '../../filters/pipeline.js';
import { indexNode, type IndexedNode, type SchedulerNode } from '../../input/node.js';
import { toFullRequest, type PlacementRequest } from '../../input/request.js';
import type { Reservation } from '../../input/reservation.js';
import type { Candidate } from '../../placement/candidate.js';
import { DEFAULT_WEIGHTS, normaliseWeights, type ScoreWeights } from '../../scoring/score.js';
import { ReferenceLedger } from './reference-ledger.js';
import { ReferenceRun } from './reference-run.js';

/**
 * The plain scan that the columnar scheduler must equal: one candidate object per node and request,
 * nothing kept between calls. Slow, and simple enough to be read beside the README.
 */
export class ReferenceCluster {
  private readonly nodes = new Map<NodeId, IndexedNode>();
  private readonly ledger = new ReferenceLedger();
  private readonly weights: ScoreWeights;

  constructor(weights: ScoreWeights = DEFAULT_WEIGHTS) {
    this.weights = normaliseWeights(weights);
  }

  upsertNode(node: SchedulerNode): void {
    this.nodes.set(node.id, indexNode(node));
  }

  removeNode(nodeId: NodeId): void {
    this.nodes.delete(nodeId);
  }

  reserve(reservation: Reservation): void {
    this.ledger.add(reservation);
  }

  release(replicaId: Reservation['replicaId']): void {
    this.ledger.remove(replicaId);
  }

  place(request: PlacementRequest, count: number): Placement[] {
    const run = this.startRun(request);
    const placements: Placement[] = [];
    while (placements.length < count) {
      const best = run.findBest();
      placements.push(
        best === undefined
          ? { placed: false, reasons: countReasons(run.candidates, run) }
          : assign(run, best),
      );
    }
    return placements;
  }

  placeOn(request: PlacementRequest, nodeIds: readonly NodeId[]): Placement[] {
    const run = this.startRun(request);
    return nodeIds.map((nodeId): Placement => {
      const candidate = run.candidates.find(({ node }) => node.id === nodeId);
      if (candidate === undefined) return { placed: false, reasons: [] };
      if (run.failureOf(candidate) === undefined) return assign(run, candidate);
      const reasons = listReasons(candidate, run);
      return { placed: false, reasons: reasons.map((reason) => ({ ...reason, nodes: 1, of: 1 })) };
    });
  }

  private startRun(request: PlacementRequest): ReferenceRun {
    return new ReferenceRun(toFullRequest(request), this.weights, this.nodes, this.ledger);
  }
}

/** Places one replica on a candidate for the rest of the run. */
function assign(run: ReferenceRun, candidate: Candidate): Placement {
  const { node, score, terms } = candidate;
  run.addPlacement(candidate);
  return { placed: true, nodeId: node.id, score, terms };
}
