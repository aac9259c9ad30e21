export interface HerdCheckerDeps {
  readonly now: () => number;
  /** Returns the number of machines. */
  readonly nodes: () => number;
  readonly violation: (text: string) => void;
}

/** Time after a coordinator's return in which dials are checked, milliseconds. */
const WATCHED_MS = 5_000;
/**
 * Dials no further apart than this count as simultaneous, milliseconds. A coordinator asks its
 * agents to spread over 50 ms or more.
 */
const TOGETHER_MS = 10;
/** Largest share of all agents that may dial simultaneously. */
const MOST_SHARE = 0.7;
/** In clusters with fewer nodes, many simultaneous dials can happen by chance. */
const LEAST_NODES = 20;

/** Invariant 25: after a coordinator restart the agents do not all reconnect at the same moment. */
export class HerdChecker {
  private watchedUntil = Number.NEGATIVE_INFINITY;
  private dials: { readonly at: number; readonly nodeId: string }[] = [];

  constructor(private readonly deps: HerdCheckerDeps) {}

  /** A coordinator that replaces an earlier one begins to serve. */
  coordinatorReturned(): void {
    this.watchedUntil = this.deps.now() + WATCHED_MS;
  }

  /** An agent dials. */
  dialled(nodeId: string): void {
    const { now, nodes, violation } = this.deps;
    const at = now();
    this.dials = [...this.dials.filter((dial) => dial.at > at - TOGETHER_MS), { at, nodeId }];
    const [all, together] = [nodes(), new Set(this.dials.map((dial) => dial.nodeId)).size];
    if (at > this.watchedUntil || all < LEAST_NODES || together <= all * MOST_SHARE) return;
    violation(
      `25: ${together} of ${all} agents dialled within ${TOGETHER_MS} ms after the coordinator returned`,
    );
  }
}
