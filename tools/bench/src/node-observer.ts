import { NodeStatus_Phase as Phase, type CoordinatorClient } from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';

/** Time limit of a wait, milliseconds. */
const WAIT_LIMIT_MS = 120_000;

/** The node phases that the coordinator reports. */
export class NodeObserver {
  /** Start of the current phase of each node, wall-clock milliseconds. */
  private readonly since = new Map<string, { readonly phase: Phase; readonly atMs: number }>();
  private readonly waiting = new Set<() => void>();
  /** The node of each change to phase LOST. */
  private readonly lostNodes: string[] = [];

  /** Number of changes to phase LOST. */
  get losses(): number {
    return this.lostNodes.length;
  }

  async watch(client: CoordinatorClient, signal: AbortSignal): Promise<void> {
    for await (const { node } of client.watchNodes({}, { signal })) {
      if (node?.status === undefined) continue;
      const { phase } = node.status;
      if (this.since.get(node.id)?.phase === phase) continue;
      if (phase === Phase.LOST) this.lostNodes.push(node.id);
      this.since.set(node.id, { phase, atMs: Date.now() });
      for (const wakeWaiting of this.waiting) wakeWaiting();
    }
  }

  count(phase: Phase): number {
    return [...this.since.values()].filter((entry) => entry.phase === phase).length;
  }

  /** Returns the number of changes of these nodes to phase LOST. */
  countLosses(nodeIds: ReadonlySet<string>): number {
    return this.lostNodes.filter((nodeId) => nodeIds.has(nodeId)).length;
  }

  /**
   * Waits until all given nodes are in one of the phases.
   * @returns The start of the current phase of each node, wall-clock milliseconds.
   */
  async waitForPhases(
    nodeIds: readonly string[],
    phases: readonly Phase[],
  ): Promise<readonly number[]> {
    const deadline = systemClock.now() + WAIT_LIMIT_MS;
    for (;;) {
      const entries = nodeIds.map((nodeId) => this.since.get(nodeId));
      const reached = entries.filter(
        (entry) => entry !== undefined && phases.includes(entry.phase),
      );
      if (reached.length === nodeIds.length) return reached.map((entry) => entry?.atMs ?? 0);
      if (systemClock.now() > deadline)
        throw new Error(
          `only ${reached.length} of ${nodeIds.length} nodes reached the expected phase in time`,
        );
      await new Promise<void>((resolve) => {
        const timer = setTimeout(wake, 1_000);
        const waiting = this.waiting;
        function wake(): void {
          clearTimeout(timer);
          waiting.delete(wake);
          resolve();
        }
        waiting.add(wake);
      });
    }
  }
}
