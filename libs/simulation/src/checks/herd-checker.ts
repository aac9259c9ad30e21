/** Needs of a {@link HerdChecker}. */
export interface HerdCheckerDeps {
  readonly now: () => number;
  /** How many machines there are. */
  readonly nodes: () => number;
  readonly violation: (text: string) => void;
}

/** For so long after its return the dials to a coordinator are looked at, milliseconds. */
const WATCHED_MS = 5_000;
/**
 * Dials that are not further apart come together, milliseconds. A coordinator asks its agents to
 * spread over 50 and more.
 */
const TOGETHER_MS = 10;
/** Most of all agents that may dial together. */
const MOST_SHARE = 0.7;
/** In a smaller cluster so many may dial together by chance. */
const LEAST_NODES = 20;

/** 25: when a coordinator is back its agents do not all dial at the same moment. */
export class HerdChecker {
  private watchedUntil = Number.NEGATIVE_INFINITY;
  private dials: { readonly at: number; readonly nodeId: string }[] = [];

  constructor(private readonly deps: HerdCheckerDeps) {}

  /** A coordinator serves that takes the place of another. */
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
      `25: ${together} of ${all} agents dialled within ${TOGETHER_MS} ms, when the coordinator was back`,
    );
  }
}
