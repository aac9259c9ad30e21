import type { Slot } from '../columns/value-column.js';
import { hostPortKey, type SchedulerHostPort } from '../input/host-ports.js';

/** The holders of each host port, by port and slot. Contains no entry for ports without a holder. */
export class PortHolders {
  /**
   * Number of holders by port and slot. Two replicas may hold one port, for example when a lost
   * node returns with a replaced replica.
   */
  private readonly holders = new Map<string, Map<Slot, number>>();

  /** Adds (1) or subtracts (-1) the ports of one replica. */
  adjust(slot: Slot, ports: readonly SchedulerHostPort[], change: 1 | -1): void {
    for (const port of ports) {
      const key = hostPortKey(port);
      const bySlot = this.holders.get(key) ?? new Map<Slot, number>();
      const held = (bySlot.get(slot) ?? 0) + change;
      if (held > 0) bySlot.set(slot, held);
      else bySlot.delete(slot);
      if (bySlot.size > 0) this.holders.set(key, bySlot);
      else this.holders.delete(key);
    }
  }

  /** Returns the first of `ports` that a replica holds on the slot; undefined when all are free. */
  findHeld(slot: Slot, ports: readonly SchedulerHostPort[]): SchedulerHostPort | undefined {
    return ports.find((port) => this.holders.get(hostPortKey(port))?.has(slot) === true);
  }

  /** Returns true when a replica holds one of `keys`, made by `hostPortKey`, on the slot. */
  isHeld(slot: Slot, keys: readonly string[]): boolean {
    for (const key of keys) if (this.holders.get(key)?.has(slot) === true) return true;
    return false;
  }

  /** Returns an independent copy. */
  clone(): PortHolders {
    const copy = new PortHolders();
    for (const [key, bySlot] of this.holders) copy.holders.set(key, new Map(bySlot));
    return copy;
  }
}
