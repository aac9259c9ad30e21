// A need says in one number what a node lacks for a request: nothing (FITS), nothing once leaving
// replicas have ended, a lower bound of its victims (toNeed), or too much for any eviction.

/** The node has the resources of the request now. */
export const FITS = -1;
/** The node has the resources as soon as its leaving replicas have ended. */
export const FITS_AFTER_LEAVING = 0;
/** No eviction of lower priorities is enough. */
export const NEVER_FITS = Infinity;

/** More than the replicas of a node. */
const BOUND_RADIX = 65_536;

/** The bounds that one number of `NodeSums.need` holds. */
export interface VictimBound {
  /** The highest priority in any victim set of the node is at least this one. */
  readonly priority: number;
  /** No victim set of the node has fewer victims of this priority or a higher one. */
  readonly victims: number;
}

/** Encodes a bound so that of two bounds the better one is the smaller number. */
export function toNeed({ priority, victims }: VictimBound): number {
  return (priority + 1) * BOUND_RADIX + victims;
}

/** Reads a need above {@link FITS_AFTER_LEAVING}. */
export function toVictimBound(need: number): VictimBound {
  return { priority: Math.floor(need / BOUND_RADIX) - 1, victims: need % BOUND_RADIX };
}
