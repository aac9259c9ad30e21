export interface ReconnectStormCheckerDeps {
  readonly now: () => number;
  /** Returns the number of machines. */
  readonly nodes: () => number;
  readonly reportViolation: (text: string) => void;
}

/** Time after a coordinator's return in which dials are checked, milliseconds. */
const CHECK_DURATION_MS = 5_000;
/**
 * Dials no further apart than this count as simultaneous, milliseconds. A coordinator makes its
 * agents spread their dials over 50 ms or more.
 */
const SIMULTANEOUS_MS = 10;
/** Largest share of all agents that may dial simultaneously. */
const MAX_SHARE = 0.7;
/** In clusters with fewer nodes, many simultaneous dials can happen by chance. */
const MIN_NODES = 20;

/** Invariant 25: after a coordinator restart the agents do not all reconnect at the same moment. */
export class ReconnectStormChecker {
  private watchedUntil = Number.NEGATIVE_INFINITY;
  private dials: { readonly at: number; readonly nodeId: string }[] = [];

  constructor(private readonly deps: ReconnectStormCheckerDeps) {}

  /** Called when a coordinator that replaces an earlier coordinator begins to serve. */
  onCoordinatorReturn(): void {
    this.watchedUntil = this.deps.now() + CHECK_DURATION_MS;
  }

  /** Called when an agent dials. */
  onDial(nodeId: string): void {
    const { now, nodes, reportViolation } = this.deps;
    const at = now();
    this.dials = [...this.dials.filter((dial) => dial.at > at - SIMULTANEOUS_MS), { at, nodeId }];
    const nodeCount = nodes();
    const dialling = new Set(this.dials.map((dial) => dial.nodeId)).size;
    if (at > this.watchedUntil || nodeCount < MIN_NODES || dialling <= nodeCount * MAX_SHARE)
      return;
    reportViolation(
      `25: ${dialling} of ${nodeCount} agents dialled within ${SIMULTANEOUS_MS} ms after the coordinator returned`,
    );
  }
}
