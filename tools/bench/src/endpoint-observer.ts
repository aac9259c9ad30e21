import type { CoordinatorClient } from '@cloudless/api';
import { ChangeObserver } from './change-observer.js';

/** Time limit of a wait, milliseconds. */
const WAIT_LIMIT_MS = 60_000;

/** Address of a replica as text; undefined without an endpoint. */
type EndpointAddress = string | undefined;

/** The endpoints of a workload that a client of WatchEndpoints receives. */
export class EndpointObserver {
  private addresses = new Map<string, string>();
  private readonly watching = new AbortController();
  private readonly changes = new ChangeObserver(WAIT_LIMIT_MS);

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

  /**
   * Waits until the condition holds, at most a minute.
   * @returns The time at which the client received the change, milliseconds of the system clock.
   */
  waitUntil(holds: () => boolean): Promise<number> {
    return this.changes.waitUntil(
      holds,
      () => `the endpoints of ${this.name} did not appear in time: ${this.replicas.join(' ')}`,
    );
  }

  /**
   * Waits until the replica has left the endpoints and is back, or has another address.
   * @returns The time of its return, milliseconds of the system clock.
   */
  async waitUntilBack(replicaId: string): Promise<number> {
    const before = this.getAddress(replicaId);
    await this.waitUntil(() => this.getAddress(replicaId) !== before);
    return this.waitUntil(() => this.getAddress(replicaId) !== undefined);
  }

  /**
   * Waits until `count` new replicas have appeared.
   * @returns The time of the first appearance of each, milliseconds of the system clock.
   */
  async waitForArrivals(count: number): Promise<readonly number[]> {
    const known = new Set(this.replicas);
    const times: number[] = [];
    await this.waitUntil(() => {
      for (const replicaId of this.replicas) {
        if (known.has(replicaId)) continue;
        known.add(replicaId);
        times.push(this.changes.lastChangeAtMs);
      }
      return times.length >= count;
    });
    return times;
  }

  /** Ends the watch. */
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
