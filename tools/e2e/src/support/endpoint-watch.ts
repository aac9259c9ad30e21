import { performance } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { type CoordinatorClient, type EndpointSet, type ReplicaEndpoint } from '@cloudless/api';

/** Delay between two watch attempts while the coordinator does not run, in milliseconds. */
const RETRY_MS = 50;

/** A received set of endpoints. */
export interface ReceivedEndpoints {
  /** Time of `performance.now()`. */
  readonly atMs: number;
  /** Number of ready replicas. */
  readonly ready: number;
  readonly replicaIds: readonly string[];
}

/**
 * Watches the endpoints of a workload and records every set. While the coordinator does not run,
 * the last set stays in use, as in a real client.
 */
export class EndpointWatch {
  /** All sets so far, oldest first. */
  readonly receivedSets: ReceivedEndpoints[] = [];
  private set: EndpointSet | undefined;
  private readonly stopping = new AbortController();
  private work: Promise<void> = Promise.resolve();

  constructor(
    private readonly client: () => CoordinatorClient,
    readonly name: string,
  ) {}

  /** The endpoints of the newest set. */
  get endpoints(): readonly ReplicaEndpoint[] {
    return this.set?.endpoints ?? [];
  }

  /** Minimum of ready replicas over all sets. */
  get lowestReady(): number {
    return Math.min(...this.receivedSets.map(({ ready }) => ready));
  }

  /**
   * Starts the watch. Resolves when the first set has arrived; rejects when the first watch fails.
   */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.work = this.follow(resolve).catch(reject);
    });
  }

  /** Ends the watch. */
  stop(): Promise<void> {
    this.stopping.abort();
    return this.work;
  }

  private async follow(onSet: () => void): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      try {
        for await (const set of this.client().watchEndpoints({ name: this.name }, { signal })) {
          if (!set.bookmark) this.recordSet(set);
          onSet();
        }
      } catch (reason) {
        if (this.set === undefined) throw reason;
      }
      await pause(RETRY_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  private recordSet(set: EndpointSet): void {
    this.set = set;
    const replicaIds = set.endpoints.map(({ replicaId }) => replicaId);
    this.receivedSets.push({ atMs: performance.now(), ready: set.readyReplicas, replicaIds });
  }
}
