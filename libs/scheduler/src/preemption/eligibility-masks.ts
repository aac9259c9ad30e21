import type { NodeId } from '@cloudless/base';
import type { FullRequest } from '../input/request.js';
import type { NodeSums } from './node-sums.js';
import type { PreemptionSource } from './preemption-source.js';

/** Most kept masks. Each takes one byte for each node. */
const MAX_MASKS = 64;

/** The nodes that pass the filters of a request. */
export interface EligibleNodes {
  /**
   * Requests with equal keys have the same nodes, which change only with the nodes. Undefined when
   * the nodes depend on other replicas.
   */
  readonly key: string | undefined;
  /** 1 for each node that passes, by the index of the node. */
  readonly passes: Uint8Array;
}

interface Mask {
  readonly request: FullRequest;
  passes: Uint8Array;
  /** Nodes that were added or have changed since the mask was computed. */
  readonly changed: Set<NodeId>;
}

/**
 * The nodes that pass the filters that no eviction changes. Requests that do not depend on other
 * replicas share the masks of equal requests; a changed node is tested again, alone.
 */
export class EligibilityMasks {
  /** The least recently used first. */
  private readonly masks = new Map<string, Mask>();

  constructor(
    private readonly source: PreemptionSource,
    private readonly sums: NodeSums,
  ) {}

  /** Notes that a node was added, changed or removed. */
  touch(nodeId: NodeId): void {
    for (const mask of this.masks.values()) mask.changed.add(nodeId);
  }

  /** Returns the nodes that pass the filters of a request. */
  get(request: FullRequest): EligibleNodes {
    if (this.source.dependsOnReplicas(request))
      return { key: undefined, passes: this.compute(request) };
    const key = toKey(request);
    const mask = this.masks.get(key) ?? {
      request,
      passes: this.compute(request),
      changed: new Set(),
    };
    this.masks.delete(key);
    this.masks.set(key, mask);
    const [oldest] = this.masks.keys();
    if (this.masks.size > MAX_MASKS && oldest !== undefined) this.masks.delete(oldest);
    this.update(mask);
    return { key, passes: mask.passes };
  }

  private compute(request: FullRequest): Uint8Array {
    const passes = new Uint8Array(this.sums.size);
    const isEligible = this.source.createEligibility(request);
    for (let index = 0; index < passes.length; index += 1) {
      const nodeId = this.sums.nodeAt(index);
      if (nodeId !== undefined && isEligible(nodeId)) passes[index] = 1;
    }
    return passes;
  }

  private update(mask: Mask): void {
    if (mask.changed.size === 0) return;
    if (mask.passes.length < this.sums.size) {
      const grown = new Uint8Array(this.sums.size * 2);
      grown.set(mask.passes);
      mask.passes = grown;
    }
    const isEligible = this.source.createEligibility(mask.request);
    for (const nodeId of mask.changed) {
      const index = this.sums.index(nodeId);
      if (index !== undefined) mask.passes[index] = isEligible(nodeId) ? 1 : 0;
    }
    mask.changed.clear();
  }
}

/** Returns a key of everything in a request that decides which nodes pass. */
function toKey(request: FullRequest): string {
  const { regions, zones, locality, nodeSelector, nodeAffinity, nodeAntiAffinity } = request;
  const { tolerations, capabilities } = request;
  return JSON.stringify([
    [regions, zones, locality, nodeSelector, nodeAffinity, nodeAntiAffinity],
    [tolerations, capabilities],
  ]);
}
