import type { CoordinatorClient } from '@cloudless/api';
import { ChangeObserver } from './change-observer.js';

/** Time limit of a recovery, milliseconds. */
const GIVE_UP_MS = 60_000;

/** Address of a replica as text; undefined without an endpoint. */
type EndpointAddress = string | undefined;

/** The endpoints of a workload as a client of WatchEndpoints sees them. */
export class EndpointObserver {
  private addresses = new Map<string, string>();
  private readonly watching = new AbortController();
  private readonly changes = new ChangeObserver(GIVE_UP_MS);

  private constructor(private readonly name: string) {}

  /** Watches a workload and waits for its first endpoints. */
  static async follow(client: CoordinatorClient, name: string): Promise<EndpointObserver> {
    const observer = new EndpointObserver(name);
    void observer.watch(client);
    await observer.waitUntil(() => observer.addresses.size > 0);
    return observer;
  }

  /** Ids of the replicas with an endpoint. */
  get replicas(): readonly string[] {
    return [...this.addresses.keys()];
  }

  getAddress(replicaId: string): EndpointAddress {
    return this.addresses.get(replicaId);
  }

  /** Resolves when the condition holds, with the time at which the client saw the change. */
  waitUntil(holds: () => boolean): Promise<number> {
    return this.changes.waitUntil(
      holds,
      () => `the endpoints of ${this.name} did not appear in time: ${this.replicas.join(' ')}`,
    );
  }

  /** Resolves when the replica has left the endpoints and is back or has another address. */
  async waitUntilBack(replicaId: string): Promise<number> {
    const before = this.getAddress(replicaId);
    await this.waitUntil(() => this.getAddress(replicaId) !== before);
    return this.waitUntil(() => this.getAddress(replicaId) !== undefined);
  }

  /** Resolves when `count` new replicas have appeared, with the time of each first appearance. */
  async waitForArrivals(count: number): Promise<readonly number[]> {
    const known = new Set(this.replicas);
    const times: number[] = [];
    await this.waitUntil(() => {
      for (const replicaId of this.replicas) {
        if (known.has(replicaId)) continue;
        known.add(replicaId);
        times.push(this.changes.atMs);
      }
      return times.length >= count;
    });
    return times;
  }

  close(): void {
    this.watching.abort();
  }

  private async watch(client: CoordinatorClient): Promise<void> {
    try {
      for await (const set of client.watchEndpoints(
        { name: this.name },
        { signal: this.watching.signal },
      )) {
        if (set.bookmark) continue;
        this.addresses = new Map(
          set.endpoints.map(({ replicaId, ip, port }) => [replicaId, `${ip}:${port}`]),
        );
        this.changes.recordChange();
      }
      throw new Error(`the watch of the endpoints of ${this.name} ended`);
    } catch (reason) {
      this.changes.endObservation(reason);
    }
  }
}
