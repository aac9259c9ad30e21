import type { Random } from '@cloudless/base';
import type { ReplicaFacts } from '../checks/replica-changes.js';
import type { World } from '../world/world.js';

/** What a fault may use. */
export interface FaultContext {
  readonly world: World;
  /** Chooses machines and times. */
  readonly random: Random;
  /** Bundle of an earlier version of the coordinator, for a rolling replacement. */
  readonly previousBundle: string | undefined;
  /** Time for which all coordinators are down, milliseconds. */
  readonly outageMs: number;
}

/** What a fault did, and what it allows. */
export interface FaultResult {
  /** Machine or machines that the fault hit. */
  readonly target: string;
  /** Time of `performance.now()` at which the leader was lost; absent: the leader stayed. */
  readonly leaderLostAtMs?: number;
  /**
   * Time of `performance.now()` from which on no answer of the lost leader can arrive any more, as its
   * process has ended. Acknowledgements after that are of the next leader, also for writes that were
   * sent before the fault. Absent: only writes that were sent after the loss show the next leader.
   */
  readonly silentFromMs?: number;
  /** The time until the next leader acts must be at most this long, milliseconds. */
  readonly leaderWithinMs?: number;
  /** Times of `performance.now()` between which no write may be acknowledged. */
  readonly noWrites?: { readonly fromMs: number; readonly toMs: number };
  /** Returns true for a replica that may be replaced or restarted because of this fault. */
  readonly mayBeReplaced?: (replica: ReplicaFacts) => boolean;
  /** True when `logs -f` may have given up; a new one is started then. */
  readonly mayEndLog?: boolean;
  /** Observations, for the line of progress. */
  readonly notes?: readonly string[];
  /** Failures of the tool or the cluster while the fault was active. */
  readonly problems?: readonly string[];
}

/** A fault: comes, stays for a while, and goes. Replaced programs may still be starting then. */
export interface Fault {
  readonly summary: string;
  inject(context: FaultContext): Promise<FaultResult>;
}

/** Returns a whole number from `from` to `to`. */
export function chooseMs(random: Random, from: number, to: number): number {
  return Math.round(from + random.next() * (to - from));
}

/** Returns one of the items. */
export function chooseOne<Item>(random: Random, items: readonly Item[]): Item {
  const item = items[Math.floor(random.next() * items.length)];
  if (item === undefined) throw new Error('there is nothing to choose from');
  return item;
}
