import type { CoordinatorClient } from '@cloudless/api';
import { Sightings } from './sightings.js';

/** Time limit of a recovery, milliseconds. */
const GIVE_UP_MS = 60_000;

/** Address of a replica as text; undefined without an endpoint. */
type Place = string | undefined;

/** The endpoints of a workload as a client of WatchEndpoints sees them. */
export class EndpointObserver {
  private places = new Map<string, string>();
  private readonly watching = new AbortController();
  private readonly sightings = new Sightings(GIVE_UP_MS);

  private constructor(private readonly name: string) {}

  /** Watches a workload and waits for its first endpoints. */
  static async follow(client: CoordinatorClient, name: string): Promise<EndpointObserver> {
    const observer = new EndpointObserver(name);
    void observer.watch(client);
    await observer.until(() => observer.places.size > 0);
    return observer;
  }

  /** Ids of the replicas with an endpoint. */
  get replicas(): readonly string[] {
    return [...this.places.keys()];
  }

  place(replicaId: string): Place {
    return this.places.get(replicaId);
  }

  /** Resolves when the condition holds, with the time at which the client saw the change. */
  until(holds: () => boolean): Promise<number> {
    return this.sightings.until(
      holds,
      () => `the endpoints of ${this.name} did not appear in time: ${this.replicas.join(' ')}`,
    );
  }

  /** Resolves when the replica has left the endpoints and is back or has another address. */
  async back(replicaId: string): Promise<number> {
    const before = this.place(replicaId);
    await this.until(() => this.place(replicaId) !== before);
    return this.until(() => this.place(replicaId) !== undefined);
  }

  /** Resolves when `count` new replicas have appeared, with the time of each first appearance. */
  async arrivals(count: number): Promise<readonly number[]> {
    const known = new Set(this.replicas);
    const times: number[] = [];
    await this.until(() => {
      for (const replicaId of this.replicas) {
        if (known.has(replicaId)) continue;
        known.add(replicaId);
        times.push(this.sightings.atMs);
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
        this.places = new Map(
          set.endpoints.map(({ replicaId, ip, port }) => [replicaId, `${ip}:${port}`]),
        );
        this.sightings.seen();
      }
      throw new Error(`the watch of the endpoints of ${this.name} ended`);
    } catch (reason) {
      this.sightings.fail(reason);
    }
  }
}
