import { domainOf, zoneKeyOf, type IndexedNode } from '../input/node.js';
import { ValueColumn, type Slot } from './value-column.js';

/** Most label columns kept. Requests name few label keys; the bound is against hostile ones. */
const MAX_LABEL_COLUMNS = 256;

/** The columns of those labels and topologies that requests have asked for, made on first use. */
export class ValueColumns {
  /** Zones for the ranking: nodes of unknown zone share a value per region. */
  readonly rankedZones: ValueColumn;
  private readonly labels = new Map<string, ValueColumn>();
  private readonly topologies = new Map<string, ValueColumn>();

  constructor(
    private readonly nodes: readonly (IndexedNode | undefined)[],
    private capacity: number,
  ) {
    this.rankedZones = new ValueColumn(zoneKeyOf, nodes, capacity);
  }

  /** Returns the column of a node label. */
  label(key: string): ValueColumn {
    const known = this.labels.get(key);
    if (known !== undefined) return known;
    if (this.labels.size >= MAX_LABEL_COLUMNS) this.labels.clear();
    const column = new ValueColumn((node) => node.labels.get(key), this.nodes, this.capacity);
    this.labels.set(key, column);
    return column;
  }

  /** Returns the column of domains of `node`, `zone`, `region` or a node label. */
  topology(key: string): ValueColumn {
    const known = this.topologies.get(key);
    if (known !== undefined) return known;
    const column = new ValueColumn((node) => domainOf(node, key), this.nodes, this.capacity);
    this.topologies.set(key, column);
    return column;
  }

  /** Number of topologies in use. */
  get topologyCount(): number {
    return this.topologies.size;
  }

  /**
   * Stores the values of a slot's node in all columns.
   * @returns True when the zone or a domain in use differs from before.
   */
  set(slot: Slot, node: IndexedNode | undefined): boolean {
    let isInOtherDomain = this.rankedZones.set(slot, node);
    for (const column of this.labels.values()) column.set(slot, node);
    for (const column of this.topologies.values())
      if (column.set(slot, node)) isInOtherDomain = true;
    return isInOtherDomain;
  }

  /** Makes room for `capacity` slots. */
  grow(capacity: number): void {
    this.capacity = capacity;
    this.rankedZones.grow(capacity);
    for (const column of this.labels.values()) column.grow(capacity);
    for (const column of this.topologies.values()) column.grow(capacity);
  }

  /** Bytes of the columns. */
  get bytes(): number {
    return (1 + this.labels.size + this.topologies.size) * this.capacity * 4;
  }
}
