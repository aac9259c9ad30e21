import type { FullRequest } from '../input/request.js';
import { toDemand, type Demand } from './demand.js';
import type { EligibilityMasks, EligibleNodes } from './eligibility-masks.js';
import { findCustomNeed } from './custom-needs.js';
import { NEVER_FITS, type NodeSums } from './node-sums.js';

/** Most kept columns. Each takes eight bytes for each node. */
const MAX_COLUMNS = 16;

/** The needs of one kind of request. */
interface NeedColumn {
  /** Result of {@link NodeSums.need} by index; {@link NEVER_FITS} for a node that fails a filter. */
  needs: Float64Array;
  /** Number of changes of {@link NodeSums} that the column includes. */
  seenChanges: number;
}

/** A request whose needs on the nodes can be computed. */
export interface PreparedRequest {
  readonly request: FullRequest;
  readonly demand: Demand;
  readonly mask: EligibleNodes;
}

/**
 * What requests need of each node. Requests with equal amounts, priority and filters share a
 * column, in which only nodes that have changed since the last decision are computed again.
 */
export class NeedColumns {
  /** The least recently used first. */
  private readonly columns = new Map<string, NeedColumn>();

  constructor(
    private readonly sums: NodeSums,
    private readonly masks: EligibilityMasks,
  ) {}

  /**
   * Finds the nodes that pass the filters of a request.
   * @param isForAll - True when the request may run on every node.
   * @returns `fits` when a node certainly fits now.
   */
  prepare(request: FullRequest, isForAll: boolean): PreparedRequest | 'fits' {
    const demand = toDemand(request);
    const mask = this.masks.get(request);
    // Most decisions end here, before the needs of any node are computed.
    const isPlain = request.hostPorts.length === 0 && demand.custom.length === 0;
    return isForAll && isPlain && this.sums.hasFit(mask.passes, demand)
      ? 'fits'
      : { request, demand, mask };
  }

  /** Returns the needs of a request on every node, by index. They must not be changed. */
  get({ request, demand, mask }: PreparedRequest): Float64Array {
    // The filters of such a request may change with every reservation.
    if (mask.key === undefined) return this.compute(request, demand, mask.passes);
    const key = `${mask.key}/${request.priority}/${demand.amounts.join(',')}/${JSON.stringify(demand.custom)}`;
    const column = this.columns.get(key) ?? { needs: new Float64Array(0), seenChanges: -1 };
    this.columns.delete(key);
    this.columns.set(key, column);
    const [oldest] = this.columns.keys();
    if (this.columns.size > MAX_COLUMNS && oldest !== undefined) this.columns.delete(oldest);
    this.update(column, request, demand, mask.passes);
    return column.needs;
  }

  private compute(request: FullRequest, demand: Demand, passes: Uint8Array): Float64Array {
    const needs = new Float64Array(this.sums.size);
    for (let index = 0; index < needs.length; index += 1)
      needs[index] = this.needOf(index, request, demand, passes);
    return needs;
  }

  private update(
    column: NeedColumn,
    request: FullRequest,
    demand: Demand,
    passes: Uint8Array,
  ): void {
    const changed = this.sums.changesSince(column.seenChanges);
    column.seenChanges = this.sums.changes;
    if (changed === undefined || column.needs.length !== this.sums.size)
      column.needs = this.compute(request, demand, passes);
    else
      for (const index of changed)
        column.needs[index] = this.needOf(index, request, demand, passes);
  }

  private needOf(index: number, request: FullRequest, demand: Demand, passes: Uint8Array): number {
    if (passes[index] !== 1 || this.sums.nodeAt(index) === undefined) return NEVER_FITS;
    const need = this.sums.need(index, demand, request.priority);
    if (demand.custom.length === 0 || need === NEVER_FITS) return need;
    return Math.max(need, findCustomNeed(this.sums, index, demand, request.priority));
  }
}
