import type { NodeTable } from '../columns/node-table.js';
import { NO_VALUE, type Slot } from '../columns/value-column.js';

/** No parent, or no root: the tree has no nodes. */
export const NO_TREE_NODE = -1;

/**
 * The form of the winner trees of all requests with one spread topology. Leaves are slots; inner
 * node `i` has the id `capacity + i` and is numbered after its children.
 *
 * Each spread domain and each zone is a sub-tree of its own. So a placement, which changes the
 * counts of one domain and one zone, changes the winners only on the way from the leaf to the root:
 * inside a sub-tree all leaves share these counts.
 */
export class TreeShape {
  /** Leaf ids are below; inner ids start here. */
  readonly capacity: number;
  /** Domain of the declared spread by slot; undefined without a declared spread. */
  readonly spreadDomainOf: Int32Array | undefined;
  /** Children by index of the inner node. */
  readonly left: Int32Array;
  readonly right: Int32Array;
  /** Index of the parent by id; {@link NO_TREE_NODE} for the root. */
  readonly parentOf: Int32Array;
  /** Id of the other child of the parent, by id. No meaning for the root. */
  readonly siblingOf: Int32Array;
  /** 1 by index of the inner node when all leaves below share their spread domain and zone. */
  readonly sharesCounts: Uint8Array;
  /** Id of the root; {@link NO_TREE_NODE} without nodes. */
  readonly root: number;
  /** Number of inner nodes. */
  readonly innerCount: number;
  /** The slots with a node. */
  readonly slots: readonly Slot[];
  /** True when a spread is declared and some node is in none of its domains. */
  readonly hasSlotsInNoDomain: boolean;
  /**
   * Roots of the sub-trees of each domain that lies in several zones, by domain. Undefined when no
   * domain does, or when zones are parts of domains.
   */
  readonly partsOf: ReadonlyMap<number, readonly number[]> | undefined;

  /** @param topology - Topology of the declared spread. */
  constructor(table: NodeTable, topology: string | undefined) {
    this.capacity = table.capacity;
    this.slots = table.listSlots();
    const inner = Math.max(0, this.slots.length - 1);
    this.left = new Int32Array(inner);
    this.right = new Int32Array(inner);
    this.parentOf = new Int32Array(this.capacity + inner).fill(NO_TREE_NODE);
    this.siblingOf = new Int32Array(this.capacity + inner);
    this.sharesCounts = new Uint8Array(inner);
    const zoneOf = table.columns.rankedZones.valueOf;
    const domainOf = topology === undefined ? undefined : table.columns.topology(topology).valueOf;
    this.spreadDomainOf = domainOf;
    this.hasSlotsInNoDomain = this.slots.some((slot) => domainOf?.[slot] === NO_VALUE);
    const builder = new TreeBuilder(this);
    const domainIn = (slot: Slot): number => domainOf?.[slot] ?? NO_VALUE;
    const zoneIn = (slot: Slot): number => zoneOf[slot] ?? NO_VALUE;
    if (isFunction(this.slots, zoneIn, domainIn)) {
      this.root = builder.joinGroups(this.slots, domainIn, (slots) =>
        builder.joinGroups(slots, zoneIn, (leaves) => builder.joinLeaves(leaves)),
      );
      this.partsOf = undefined;
    } else {
      const parts = new Map<number, number[]>();
      this.root = builder.joinGroups(this.slots, zoneIn, (slots) =>
        builder.joinGroups(slots, domainIn, (leaves, domain) => {
          const part = builder.joinLeaves(leaves);
          const known = parts.get(domain);
          if (known === undefined) parts.set(domain, [part]);
          else known.push(part);
          return part;
        }),
      );
      for (const [domain, roots] of parts) if (roots.length === 1) parts.delete(domain);
      parts.delete(NO_VALUE); // the count of nodes in no domain never changes
      this.partsOf = parts.size === 0 ? undefined : parts;
    }
    this.innerCount = builder.innerCount;
  }

  /** Bytes of the arrays. */
  get bytes(): number {
    const { left, right, parentOf, siblingOf, sharesCounts } = this;
    return [left, right, parentOf, siblingOf, sharesCounts].reduce(
      (sum, { byteLength }) => sum + byteLength,
      0,
    );
  }
}

/** Joins leaves and sub-trees in pairs, so that each sub-tree is balanced. */
class TreeBuilder {
  innerCount = 0;

  constructor(
    private readonly shape: Pick<
      TreeShape,
      'capacity' | 'left' | 'right' | 'parentOf' | 'siblingOf' | 'sharesCounts'
    >,
  ) {}

  /** Joins leaves of one spread domain and one zone. Returns the id of the root. */
  joinLeaves(slots: readonly Slot[]): number {
    const first = this.innerCount;
    const root = this.join(slots);
    this.shape.sharesCounts.fill(1, first, this.innerCount);
    return root;
  }

  /** Joins sub-trees to one. Returns the id of the root. */
  join(ids: readonly number[]): number {
    let level = ids;
    while (level.length > 1) {
      const next: number[] = [];
      for (let index = 0; index < level.length; index += 2) {
        const [a, b] = [level[index] ?? NO_TREE_NODE, level[index + 1]];
        next.push(b === undefined ? a : this.joinPair(a, b));
      }
      level = next;
    }
    return level[0] ?? NO_TREE_NODE;
  }

  /** Joins the slots of each group to a sub-tree, and the sub-trees to one. */
  joinGroups(
    slots: readonly Slot[],
    groupOf: (slot: Slot) => number,
    joinGroup: (slots: readonly Slot[], group: number) => number,
  ): number {
    const groups = new Map<number, Slot[]>();
    for (const slot of slots) {
      const group = groups.get(groupOf(slot));
      if (group === undefined) groups.set(groupOf(slot), [slot]);
      else group.push(slot);
    }
    return this.join(Array.from(groups, ([group, members]) => joinGroup(members, group)));
  }

  private joinPair(a: number, b: number): number {
    const { capacity, left, right, parentOf, siblingOf } = this.shape;
    const index = this.innerCount;
    this.innerCount += 1;
    left[index] = a;
    right[index] = b;
    parentOf[a] = index;
    parentOf[b] = index;
    siblingOf[a] = b;
    siblingOf[b] = a;
    return capacity + index;
  }
}

/** Returns true when `from` decides `to`: slots with an equal `from` have an equal `to`. */
function isFunction(
  slots: readonly Slot[],
  from: (slot: Slot) => number,
  to: (slot: Slot) => number,
): boolean {
  const images = new Map<number, number>();
  return slots.every((slot) => {
    const image = images.get(from(slot));
    if (image === undefined) images.set(from(slot), to(slot));
    return image === undefined || image === to(slot);
  });
}
