import type { Slot } from '../columns/value-column.js';
import type { NodeMatch } from '../signatures/node-match.js';
import type { RequestTerms } from '../signatures/request-terms.js';
import type { SpreadCeiling } from '../trees/spread-ceiling.js';

/**
 * The nodes that all filters allow for one replica of a request, but the filters over free amounts
 * and host ports. Valid until the next change of a node or a reservation.
 */
export class EligibleNodes {
  /**
   * Equal for requests with the same nodes, which change with the nodes alone. Undefined when the
   * nodes depend on other replicas.
   */
  readonly key: string | undefined;
  private readonly allowed: Uint8Array;
  private readonly terms: RequestTerms | undefined;

  /** @param key - Key of the filters over nodes alone. */
  constructor(
    match: NodeMatch,
    terms: RequestTerms,
    private readonly ceiling?: SpreadCeiling,
    key?: string,
  ) {
    this.allowed = match.allowed;
    this.terms = terms.isEmpty ? undefined : terms;
    this.key = this.terms === undefined && ceiling === undefined ? key : undefined;
  }

  /** Returns true when the filters allow the node of a slot. */
  has(slot: Slot): boolean {
    return (
      this.allowed[slot] === 1 &&
      (this.terms === undefined || this.terms.allow(slot)) &&
      (this.ceiling === undefined || !this.ceiling.excludes(slot))
    );
  }
}
