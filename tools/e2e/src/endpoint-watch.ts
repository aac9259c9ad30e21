import { performance } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { type CoordinatorClient, type EndpointSet, type ReplicaEndpoint } from '@cloudless/api';

/** Between two attempts, while the coordinator is away. */
const AGAIN_MS = 50;

/** A set of endpoints that somebody was told. */
export interface Seen {
  /** By `performance.now()`. */
  readonly atMs: number;
  readonly ready: number;
  readonly replicaIds: readonly string[];
}

/**
 * Follows the endpoints of a workload and remembers every set; goes on with the last one while the
 * coordinator is away.
 */
export class EndpointWatch {
  readonly seen: Seen[] = [];
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

  /** Ready replicas in the smallest set. */
  get lowestReady(): number {
    return Math.min(...this.seen.map(({ ready }) => ready));
  }

  /** @returns once the first set is known. */
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
          if (!set.bookmark) this.see(set);
          known();
        }
      } catch (reason) {
        if (this.set === undefined) throw reason;
      }
      await pause(AGAIN_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  private see(set: EndpointSet): void {
    this.set = set;
    const replicaIds = set.endpoints.map(({ replicaId }) => replicaId);
    this.seen.push({ atMs: performance.now(), ready: set.readyReplicas, replicaIds });
  }
}
