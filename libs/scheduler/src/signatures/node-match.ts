import type { NodeTable } from '../columns/node-table.js';
import type { Slot } from '../columns/value-column.js';
import { matchesValue, type LabelRequirement } from '../input/labels.js';
import type { FullRequest, NodeTerm } from '../input/request.js';
import { EXCLUDED, type ClassScores } from './class-scores.js';

/**
 * The nodes that the filters over nodes alone allow, for all requests that ask the same of a node:
 * of its class and of its labels.
 */
export class NodeMatch {
  /** 1 for each slot whose node the filters allow. */
  allowed = new Uint8Array(0);
  /** The allowed slots, in the order of the table. */
  slots = new Int32Array(0);
  count = 0;
  /** Sum of the weights of matching preferred terms by slot; undefined without such a term. */
  affinityWeight: Int32Array | undefined;
  antiAffinityWeight: Int32Array | undefined;
  /** The slot that the last scan over the match has chosen. A hint: any slot is correct. */
  lastBest: Slot = 0;
  private revision = -1;
  /** The allowed slots by zone, and what they were listed from. */
  private zones: { readonly slots: Int32Array; readonly zoneOf: Int32Array; byZone: Int32Array[] } =
    {
      slots: this.slots,
      zoneOf: this.slots,
      byZone: [],
    };

  constructor(
    private readonly table: NodeTable,
    private readonly request: FullRequest,
    readonly classScores: ClassScores,
  ) {}

  /** Brings the match up to date with the nodes. */
  refresh(): void {
    this.classScores.extend();
    if (this.revision === this.table.nodeRevision) return;
    this.revision = this.table.nodeRevision;
    this.matchClasses();
    this.matchLabels();
    this.listSlots();
  }

  /**
   * Returns the allowed slots by zone, in the order of the table.
   * @param zoneOf - Zone by slot, of the same nodes as the match.
   * @param zones - Number of zones.
   */
  slotsByZone(zoneOf: Int32Array, zones: number): readonly Int32Array[] {
    const { slots, count } = this;
    if (this.zones.slots === slots && this.zones.zoneOf === zoneOf) return this.zones.byZone;
    const lengths = new Int32Array(zones);
    const listed = slots.subarray(0, count);
    for (const slot of listed) lengths[zoneOf[slot] ?? 0] = (lengths[zoneOf[slot] ?? 0] ?? 0) + 1;
    const byZone = Array.from(lengths, (length) => new Int32Array(length));
    lengths.fill(0);
    for (const slot of listed) {
      const zone = zoneOf[slot] ?? 0;
      const position = lengths[zone] ?? 0;
      const members = byZone[zone];
      if (members !== undefined) members[position] = slot;
      lengths[zone] = position + 1;
    }
    this.zones = { slots, zoneOf, byZone };
    return byZone;
  }

  /** Bytes of the arrays, of which the request decides how many there are. */
  get bytes(): number {
    const { nodeAffinity, nodeAntiAffinity } = this.request;
    const weights = [nodeAffinity, nodeAntiAffinity].filter((terms) =>
      terms.some(({ mode }) => mode === 'preferred'),
    );
    return this.table.capacity * (1 + 4 + 4 + 4 * weights.length);
  }

  private matchClasses(): void {
    const { table, classScores } = this;
    const { classOf, size, capacity } = table;
    const { base } = classScores;
    this.allowed = new Uint8Array(capacity);
    for (let slot = 0; slot < size; slot += 1)
      if (base[classOf[slot] ?? 0] !== EXCLUDED) this.allowed[slot] = 1;
  }

  private matchLabels(): void {
    const { nodeSelector, nodeAffinity, nodeAntiAffinity } = this.request;
    for (const [key, value] of Object.entries(nodeSelector))
      this.allowOnly(this.matchTerm([{ key, operator: 'In', values: [value] }]), 1);
    const isRequired = ({ mode }: NodeTerm): boolean => mode === 'required';
    for (const term of nodeAffinity.filter(isRequired))
      this.allowOnly(this.matchTerm(term.requirements), 1);
    for (const term of nodeAntiAffinity.filter(isRequired))
      this.allowOnly(this.matchTerm(term.requirements), 0);
    this.affinityWeight = this.sumWeights(nodeAffinity);
    this.antiAffinityWeight = this.sumWeights(nodeAntiAffinity);
  }

  private allowOnly(matches: Uint8Array, wanted: 0 | 1): void {
    const { allowed } = this;
    for (let slot = 0; slot < matches.length; slot += 1)
      if (matches[slot] !== wanted) allowed[slot] = 0;
  }

  private sumWeights(terms: readonly NodeTerm[]): Int32Array | undefined {
    let sums: Int32Array | undefined;
    for (const term of terms) {
      if (term.mode !== 'preferred') continue;
      sums ??= new Int32Array(this.table.capacity);
      const matches = this.matchTerm(term.requirements);
      for (let slot = 0; slot < matches.length; slot += 1)
        if (matches[slot] === 1) sums[slot] = (sums[slot] ?? 0) + term.weight;
    }
    return sums;
  }

  /** Returns 1 for each slot whose labels meet all requirements. */
  private matchTerm(requirements: readonly LabelRequirement[]): Uint8Array {
    const matches = new Uint8Array(this.table.size).fill(1);
    for (const requirement of requirements) {
      const { valueOf, values } = this.table.columns.label(requirement.key);
      // Each distinct value is compared once, not each node.
      const holds = Uint8Array.from(values, (value) => Number(matchesValue(requirement, value)));
      for (let slot = 0; slot < matches.length; slot += 1)
        if (holds[valueOf[slot] ?? 0] === 0) matches[slot] = 0;
    }
    return matches;
  }

  private listSlots(): void {
    const { allowed } = this;
    const { size } = this.table;
    const slots = new Int32Array(size);
    let count = 0;
    for (let slot: Slot = 0; slot < size; slot += 1)
      if (allowed[slot] === 1) {
        slots[count] = slot;
        count += 1;
      }
    this.slots = slots;
    this.count = count;
  }
}
