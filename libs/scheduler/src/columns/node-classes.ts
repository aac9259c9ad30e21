import { AVAILABILITY_ORDER, type IndexedNode } from '../input/node.js';
import type { Resources } from '../input/resources.js';
import { describeTaint } from '../input/taints.js';

/** Id of the class of slots without a node. */
export const NO_CLASS = 0;

/**
 * Nodes with equal availability, place, taints, capabilities, conditions and reliability form a
 * class. The filters and score terms that depend on nothing else are computed once per class.
 * Labels and capacities are no part of a class, as they may differ between all nodes.
 */
export class NodeClasses {
  /** One node of each class. The entry of {@link NO_CLASS} is undefined. */
  readonly examples: (IndexedNode | undefined)[] = [undefined];
  private readonly ids = new Map<string, number>();

  /** Returns the class of a node. */
  intern(node: IndexedNode): number {
    const key = JSON.stringify([
      node.region,
      node.zone,
      node.reliability,
      Object.values(node.conditions),
      AVAILABILITY_ORDER.filter((condition) => node.node.availability?.[condition] === true),
      node.taints.map(describeTaint),
      [...node.capabilities].sort(),
      [...node.suspendedCapabilities].sort(),
      node.node.suspensionReason ?? '',
    ]);
    const known = this.ids.get(key);
    if (known !== undefined) return known;
    const id = this.examples.push(node) - 1;
    this.ids.set(key, id);
    return id;
  }
}

/** Distinct sizes of machines. The cost term is computed once per size. */
export class NodeSizes {
  readonly capacities: Resources[] = [];
  private readonly ids = new Map<string, number>();

  /** Returns the size of a node. */
  intern({ capacity }: IndexedNode): number {
    const key = `${capacity.cpuMillis}/${capacity.memoryBytes}/${capacity.gpus}`;
    const known = this.ids.get(key);
    if (known !== undefined) return known;
    const id = this.capacities.push(capacity) - 1;
    this.ids.set(key, id);
    return id;
  }
}

/** Pairs of a class and a size. All that a score needs of a node besides its use is equal there. */
export class NodeKinds {
  readonly classIds: number[] = [];
  readonly sizeIds: number[] = [];
  /** Share of the machine that one unit takes, which may be off by rounding. */
  readonly cpuShares: number[] = [];
  readonly memoryShares: number[] = [];
  private readonly ids = new Map<string, number>();

  /** @param capacity - Capacity of the size. */
  intern(classId: number, sizeId: number, capacity: Resources): number {
    const key = `${classId}/${sizeId}`;
    const known = this.ids.get(key);
    if (known !== undefined) return known;
    this.classIds.push(classId);
    // On a machine without CPU or memory, any use scores 0 and is far from any other share.
    this.cpuShares.push(1 / Math.max(1, capacity.cpuMillis));
    this.memoryShares.push(1 / Math.max(1, capacity.memoryBytes));
    const id = this.sizeIds.push(sizeId) - 1;
    this.ids.set(key, id);
    return id;
  }
}
