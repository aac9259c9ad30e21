import type { Slot } from '../columns/value-column.js';
import type { FullRequest } from '../input/request.js';
import { BoundedCache } from '../placement/bounded-cache.js';
import type { EligibleNodes } from '../placement/eligible-nodes.js';
import { findCustomNeed } from './custom-needs.js';
import type { Demand } from './demand.js';
import { NEVER_FITS } from './need.js';
import type { NodeSums } from './node-sums.js';

/** Most kept columns. Each takes eight bytes for each node. */
const MAX_COLUMNS = 16;

/** The needs of one kind of request. */
interface NeedColumn {
  /** Need by slot; {@link NEVER_FITS} for a node that fails a filter. */
  needs: Float64Array;
  /** Number of changes of {@link NodeSums} that the column includes. */
  seenChanges: number;
}

/** A request whose needs on the nodes can be computed. */
export interface PreparedRequest {
  readonly request: FullRequest;
  readonly demand: Demand;
  readonly eligible: EligibleNodes;
}

/**
 * What requests need of each node. Requests with equal amounts, priority and filters share a
 * column, in which only nodes that have changed since the last decision are computed again.
 */
export class NeedColumns {
  private readonly columns = new BoundedCache<NeedColumn>(MAX_COLUMNS, Infinity, () => 0);

  constructor(private readonly sums: NodeSums) {}

  /** Returns the needs of a request on every node, by slot. They must not be changed. */
  get(prepared: PreparedRequest): Float64Array {
    const { request, demand, eligible } = prepared;
    // The filters of such a request may change with every reservation.
    if (eligible.key === undefined) return this.compute(prepared);
    const key = JSON.stringify([eligible.key, request.priority, demand.amounts, demand.custom]);
    const column = this.columns.getOrCreate(key, () => ({
      needs: new Float64Array(0),
      seenChanges: -1,
    }));
    this.update(column, prepared);
    return column.needs;
  }

  /** Returns what a request needs of one node. */
  needOf(slot: Slot, { request, demand, eligible }: PreparedRequest): number {
    if (!eligible.has(slot)) return NEVER_FITS;
    const need = this.sums.need(slot, demand, request.priority);
    if (demand.custom.length === 0 || need === NEVER_FITS) return need;
    return Math.max(need, findCustomNeed(this.sums, slot, demand, request.priority));
  }

  private compute(prepared: PreparedRequest): Float64Array {
    const needs = new Float64Array(this.sums.size);
    for (let slot = 0; slot < needs.length; slot += 1) needs[slot] = this.needOf(slot, prepared);
    return needs;
  }

  private update(column: NeedColumn, prepared: PreparedRequest): void {
    const changed = this.sums.changesSince(column.seenChanges);
    column.seenChanges = this.sums.changes;
    if (changed === undefined || column.needs.length !== this.sums.size)
      column.needs = this.compute(prepared);
    else for (const slot of changed) column.needs[slot] = this.needOf(slot, prepared);
  }
}
