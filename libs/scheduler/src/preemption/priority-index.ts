import type { Slot } from '../columns/value-column.js';
import { DIMENSIONS } from './demand.js';
import type { FreeAmounts } from './free-amounts.js';
import type { HeldSums } from './held-sums.js';
import { PriorityMembers } from './priority-members.js';

/**
 * Finds the nodes that hold replicas of a priority. The highest priority that has to leave a node
 * is one that the node holds. So the nodes with the best victims are members of the lowest priority
 * that has a member with enough resources once this and all lower priorities have left.
 */
export class PriorityIndex {
  /** Ascending. Priorities without members stay: there are few. */
  readonly priorities: PriorityMembers[] = [];
  private readonly members = new Map<number, PriorityMembers>();

  constructor(
    private readonly amounts: FreeAmounts,
    private readonly held: HeldSums,
  ) {}

  /** Adds a node to its priorities. */
  add(slot: Slot): void {
    const { held } = this;
    const length = held.lengthOf(slot);
    for (let entry = 0; entry < length; entry += 1)
      this.membersOf(held.priorityAt(slot, entry)).add(slot);
  }

  /** Removes a node from its priorities, before they change. */
  remove(slot: Slot): void {
    const { held } = this;
    const length = held.lengthOf(slot);
    for (let entry = 0; entry < length; entry += 1)
      this.membersOf(held.priorityAt(slot, entry)).remove(slot);
  }

  private readonly reachOf = (slot: Slot, priority: number, dimension: number): number => {
    const { held } = this;
    const free = this.amounts.free[slot * DIMENSIONS + dimension] ?? 0;
    return free + held.heldAt(slot, held.findEntry(slot, priority), dimension);
  };

  private membersOf(priority: number): PriorityMembers {
    const known = this.members.get(priority);
    if (known !== undefined) return known;
    const added = new PriorityMembers(priority, this.reachOf);
    this.members.set(priority, added);
    const { priorities } = this;
    const after = priorities.findIndex((other) => other.priority > priority);
    priorities.splice(after < 0 ? priorities.length : after, 0, added);
    return added;
  }
}
