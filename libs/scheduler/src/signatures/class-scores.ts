import { NO_CLASS, type NodeClasses } from '../columns/node-classes.js';
import { copyOf } from '../columns/node-table.js';
import { allowsClass } from '../filters/pipeline.js';
import type { FullRequest } from '../input/request.js';
import { NO_RESOURCES } from '../input/resources.js';
import { isTolerated } from '../input/taints.js';
import {
  computeNetworkPenalty,
  scoreLocality,
  scoreReliability,
  type ScoreWeights,
} from '../scoring/score.js';

/** Score of a node on which a request does not fit. */
export const EXCLUDED = -Infinity;

/**
 * What the filters and score terms say about each class of nodes, for all requests with equal
 * places, capabilities and tolerations.
 */
export class ClassScores {
  /** Weighted locality plus weighted reliability; {@link EXCLUDED} where a filter fails. */
  base = new Float64Array(8);
  /** Weighted network penalty of a node with enough bandwidth. */
  penalty = new Float64Array(8);
  /** Score term of the untolerated PreferNoSchedule taints. */
  taints = new Float64Array(8);
  /** The terms in `base` and `penalty` without their weights, for those who ask for the terms. */
  locality = new Float64Array(8);
  reliability = new Float64Array(8);
  networkPenalty = new Float64Array(8);
  private readonly request: FullRequest;
  private known = NO_CLASS;

  constructor(
    request: FullRequest,
    private readonly weights: ScoreWeights,
    private readonly classes: NodeClasses,
  ) {
    // The bandwidth counts per node: on a node with enough of it, the penalty depends on the class.
    this.request = { ...request, resources: NO_RESOURCES };
    this.base[NO_CLASS] = EXCLUDED;
  }

  /** Adds the classes that are new since the last call. */
  extend(): void {
    const { examples } = this.classes;
    if (this.known === examples.length) return;
    if (examples.length > this.base.length) this.grow(examples.length * 2);
    const { request, weights } = this;
    for (let id = Math.max(this.known, NO_CLASS + 1); id < examples.length; id += 1) {
      const node = examples[id];
      if (node === undefined) continue;
      const locality = scoreLocality(node, request);
      const reliability = scoreReliability(node);
      const networkPenalty = computeNetworkPenalty(node, NO_RESOURCES, request);
      this.locality[id] = locality;
      this.reliability[id] = reliability;
      this.networkPenalty[id] = networkPenalty;
      this.base[id] = allowsClass({ node }, { request })
        ? weights.locality * locality + weights.reliability * reliability
        : EXCLUDED;
      this.penalty[id] = weights.networkPenalty * networkPenalty;
      const untolerated = node.taints.filter(
        (taint) => taint.effect === 'PreferNoSchedule' && !isTolerated(taint, request.tolerations),
      );
      this.taints[id] = 0 - untolerated.length * 0.1;
    }
    this.known = examples.length;
  }

  private grow(capacity: number): void {
    this.base = copyOf(this.base, capacity);
    this.penalty = copyOf(this.penalty, capacity);
    this.taints = copyOf(this.taints, capacity);
    this.locality = copyOf(this.locality, capacity);
    this.reliability = copyOf(this.reliability, capacity);
    this.networkPenalty = copyOf(this.networkPenalty, capacity);
  }
}
