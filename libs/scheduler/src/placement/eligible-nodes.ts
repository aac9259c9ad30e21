import type { Slot } from '../columns/value-column.js';
import type { NodeMatch } from '../signatures/node-match.js';
import type { RequestTerms } from '../signatures/request-terms.js';
import type { SpreadCeiling } from '../trees/spread-ceiling.js';

/**
 * The nodes that pass every filter for one replica of a request, except those of free amounts, host
 * ports and the number of replicas. Valid until the next change of a node or a reservation.
 */
export class EligibleNodes {
  /**
   * Requests with the same key have the same nodes until a node changes. Undefined when the nodes
   * also depend on other replicas.
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
