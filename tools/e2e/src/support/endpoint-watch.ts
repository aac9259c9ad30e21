import { performance } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { type CoordinatorClient, type EndpointSet, type ReplicaEndpoint } from '@cloudless/api';

/** Delay between two connection attempts while the coordinator is away, milliseconds. */
const AGAIN_MS = 50;

/** A received set of endpoints. */
export interface ReceivedEndpoints {
  /** Time of `performance.now()`. */
  readonly atMs: number;
  readonly ready: number;
  readonly replicaIds: readonly string[];
}

/**
 * Watches the endpoints of a workload and records every set. While the coordinator is away the last
 * set stays in use.
 */
export class EndpointWatch {
  readonly receivedSets: ReceivedEndpoints[] = [];
  private set: EndpointSet | undefined;
  private readonly stopping = new AbortController();
  private work: Promise<void> = Promise.resolve();

  constructor(
    private readonly client: () => CoordinatorClient,
    readonly name: string,
  ) {}

  get endpoints(): readonly ReplicaEndpoint[] {
    return this.set?.endpoints ?? [];
  }

  /** Minimum of ready replicas over all sets. */
  get lowestReady(): number {
    return Math.min(...this.receivedSets.map(({ ready }) => ready));
  }

  /** Resolves when the first set has arrived. */
  start(): Promise<void> {
    return new Promise((known, unknown) => {
      this.work = this.follow(known).catch(unknown);
    });
  }

  stop(): Promise<void> {
    this.stopping.abort();
    return this.work;
  }

  private async follow(known: () => void): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      try {
        for await (const set of this.client().watchEndpoints({ name: this.name }, { signal })) {
          if (!set.bookmark) this.recordSet(set);
          known();
        }
      } catch (reason) {
        if (this.set === undefined) throw reason;
      }
      await pause(AGAIN_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  private recordSet(set: EndpointSet): void {
    this.set = set;
    const replicaIds = set.endpoints.map(({ replicaId }) => replicaId);
    this.receivedSets.push({ atMs: performance.now(), ready: set.readyReplicas, replicaIds });
  }
}
