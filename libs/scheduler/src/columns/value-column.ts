import type { IndexedNode } from '../input/node.js';

/** Index of a node in the columns. Small whole numbers, reused after the node is forgotten. */
export type Slot = number;

/** Id of the value of nodes without a value: without the label, or of unknown zone or region. */
export const NO_VALUE = 0;

/**
 * One property of all nodes as small whole numbers: the value of a label, or the domain of a
 * topology. Nodes with equal text have equal ids.
 */
export class ValueColumn {
  /** Id of each slot's value, from 1; {@link NO_VALUE} without a value or a node. */
  valueOf: Int32Array;
  /** Text of each id. The entry of {@link NO_VALUE} is undefined. */
  readonly values: (string | undefined)[] = [undefined];
  private readonly ids = new Map<string, number>();
  private slotsOf: readonly (readonly Slot[])[] | undefined;

  constructor(
    private readonly read: (node: IndexedNode) => string | undefined,
    nodes: readonly (IndexedNode | undefined)[],
    capacity: number,
  ) {
    this.valueOf = new Int32Array(capacity);
    nodes.forEach((node, slot) => this.set(slot, node));
  }

  /** Stores the value of a slot's node. Returns true when the value differs from before. */
  set(slot: Slot, node: IndexedNode | undefined): boolean {
    const text = node === undefined ? undefined : this.read(node);
    const id = text === undefined ? NO_VALUE : this.intern(text);
    if (this.valueOf[slot] === id) return false;
    this.valueOf[slot] = id;
    this.slotsOf = undefined;
    return true;
  }

  /** Makes room for `capacity` slots. */
  grow(capacity: number): void {
    const grown = new Int32Array(capacity);
    grown.set(this.valueOf);
    this.valueOf = grown;
  }

  /** Returns the id of a value; undefined when no node has had the value. */
  idOf(text: string): number | undefined {
    return this.ids.get(text);
  }

  /** Lists the slots with a value. */
  slotsWith(id: number): readonly Slot[] {
    this.slotsOf ??= this.groupSlots();
    return this.slotsOf[id] ?? [];
  }

  private groupSlots(): readonly (readonly Slot[])[] {
    const groups: Slot[][] = this.values.map(() => []);
    this.valueOf.forEach((id, slot) => {
      if (id !== NO_VALUE) groups[id]?.push(slot);
    });
    return groups;
  }

  private intern(text: string): number {
    const known = this.ids.get(text);
    if (known !== undefined) return known;
    const id = this.values.push(text) - 1;
    this.ids.set(text, id);
    return id;
  }
}
