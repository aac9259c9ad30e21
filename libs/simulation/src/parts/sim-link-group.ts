import type { Clock } from '@cloudless/base';
import { SimLink, type Direction } from './sim-link.js';
import type { SimRandom } from './sim-random.js';

/**
 * The network of one machine, with one link to each coordinator: a fault of the machine's network
 * affects all links, a fault of one link only that link. With one coordinator, use {@link SimLink}.
 */
export class SimLinkGroup extends SimLink {
  private readonly links: ReadonlyMap<string, SimLink>;

  /** @param addresses - URLs of the coordinators. */
  constructor(name: string, time: Clock, random: SimRandom, addresses: readonly string[]) {
    super(name, time, random);
    this.links = new Map(
      addresses.map((address) => [
        address,
        new SimLink(`${name} and ${address}`, time, random.fork(), this.faults),
      ]),
    );
  }

  override to(address: string): SimLink {
    return this.links.get(address) ?? this;
  }

  override stall(durationMs: number, direction?: Direction): void {
    for (const link of this.links.values()) link.stall(durationMs, direction);
  }

  override cut(durationMs: number): void {
    for (const link of this.links.values()) link.cut(durationMs);
  }

  override reset(): void {
    for (const link of this.links.values()) link.reset();
  }

  override heal(): void {
    for (const link of this.links.values()) link.heal();
  }

  override wasPerfectSince(at: number): boolean {
    return [...this.links.values()].every((link) => link.wasPerfectSince(at));
  }
}
