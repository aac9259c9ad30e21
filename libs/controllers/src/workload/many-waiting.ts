import type { ControlRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { waitsForNode, type Stored } from '@cloudless/cluster-state';
import { isGlobal } from '../rollout/global-targets.js';

/**
 * Least number of waiting replicas at which the waiting replicas of a workload are counted instead
 * of read. Fewer of them are read in a few milliseconds.
 */
export const MIN_COUNTED = 10_000;

/** The waiting replicas of a workload as counts, and the ids of its other replicas. */
export interface CountedWaiting {
  readonly count: number;
  /** The version of all of them; undefined when they have several. */
  readonly version: number | undefined;
  /** The ids of all other replicas, in any order. */
  readonly otherIds: ReadonlySet<string>;
  /**
   * Returns a test that is true for a slot that a waiting replica has now. The test stays as it is
   * when replicas change: a decision spans several commits, and a replica that is placed between two
   * of them keeps its slot.
   */
  createSlotTest(): (slot: number) => boolean;
  /**
   * Returns true when a pass over the workload needs its waiting replicas as a count only, as far as
   * the records of the workload show: passes have applied its spec, and all have its version. A
   * request to move replicas makes no difference, as such replicas have a node.
   */
  mayReplace(workload: WorkloadRecord, control: ControlRecord): boolean;
}

/**
 * Counts of the waiting replicas of workloads that have very many of them, kept up to date with each
 * change, so that a pass over such a workload looks at its other replicas only: those are limited by
 * the size of the cluster.
 */
export class ManyWaiting {
  private readonly byWorkload = new Map<string, Counted>();

  /** @param minCounted - Workloads with fewer waiting replicas are not counted. */
  constructor(private readonly minCounted = MIN_COUNTED) {}

  /** Returns the counts of a workload; undefined when its replicas are not counted. */
  get(uid: string): CountedWaiting | undefined {
    return this.byWorkload.get(uid);
  }

  /**
   * Begins to count when very many replicas of a workload wait.
   * @param replicas - All replicas of the workload.
   */
  begin(uid: string, replicas: readonly Stored<ReplicaRecord>[]): void {
    if (this.byWorkload.has(uid) || replicas.length < this.minCounted) return;
    let waiting = 0;
    for (const { value } of replicas) if (isCounted(value)) waiting += 1;
    if (waiting < this.minCounted) return;
    const counted = new Counted();
    for (const { value } of replicas) counted.add(value);
    if (counted.hasSharedSlot) return;
    this.byWorkload.set(uid, counted);
  }

  /**
   * Takes a change of a replica into account, also one that the replicas passed to {@link begin}
   * show already. Ends the count when only half as many replicas wait as are needed to begin, and
   * when two of them share a slot.
   */
  applyChange(
    uid: string,
    before: ReplicaRecord | undefined,
    after: ReplicaRecord | undefined,
  ): void {
    const counted = this.byWorkload.get(uid);
    if (counted === undefined) return;
    if (before !== undefined) counted.remove(before);
    if (after !== undefined) counted.add(after);
    if (counted.hasSharedSlot || 2 * counted.count < this.minCounted) this.byWorkload.delete(uid);
  }

  forget(uid: string): void {
    this.byWorkload.delete(uid);
  }
}

class Counted implements CountedWaiting {
  count = 0;
  readonly otherIds = new Set<string>();
  private readonly byVersion = new Map<number, number>();
  /** Mark of the waiting replica of each slot; 0 without one. */
  private slots = new Float64Array(1_024);
  /**
   * True when two waiting replicas share a slot, which is a fault. The count would lack one of them,
   * and passes would create further replicas for the missing one.
   */
  hasSharedSlot = false;

  get version(): number | undefined {
    const [version] = this.byVersion.keys();
    return this.byVersion.size === 1 ? version : undefined;
  }

  mayReplace(
    { spec, version, generation }: WorkloadRecord,
    { observedGeneration }: ControlRecord,
  ): boolean {
    return (
      this.version === version &&
      observedGeneration === generation &&
      !isGlobal(spec) &&
      (spec?.rollout?.steps.length ?? 0) === 0
    );
  }

  createSlotTest(): (slot: number) => boolean {
    const marks = this.slots.slice();
    return (slot) => (marks[slot] ?? 0) > 0;
  }

  add(replica: ReplicaRecord): void {
    if (!isCounted(replica)) {
      this.otherIds.add(replica.id);
      return;
    }
    const { slot, version } = replica;
    const mark = toMark(replica);
    const known = this.slots[slot] ?? 0;
    if (known > 0) {
      // Another number is that of another replica, the same number that of an earlier addition.
      if (known !== mark) this.hasSharedSlot = true;
      return;
    }
    if (slot >= this.slots.length) this.grow(slot);
    this.slots[slot] = mark;
    this.count += 1;
    this.byVersion.set(version, (this.byVersion.get(version) ?? 0) + 1);
  }

  remove(replica: ReplicaRecord): void {
    if (!isCounted(replica)) {
      this.otherIds.delete(replica.id);
      return;
    }
    const { slot, version } = replica;
    if (this.slots[slot] !== toMark(replica)) return;
    this.slots[slot] = 0;
    this.count -= 1;
    const ofVersion = (this.byVersion.get(version) ?? 0) - 1;
    if (ofVersion > 0) this.byVersion.set(version, ofVersion);
    else this.byVersion.delete(version);
  }

  private grow(slot: number): void {
    const slots = new Float64Array(2 * (slot + 1));
    slots.set(this.slots);
    this.slots = slots;
  }
}

/** Returns true for a waiting replica that may run on any node. */
function isCounted(replica: ReplicaRecord): boolean {
  return waitsForNode(replica) && replica.onlyNodeId === '' && !replica.lost;
}

/** Returns a number above 0 that no other replica of the workload has. */
function toMark({ sequence }: ReplicaRecord): number {
  return Number(sequence) + 1;
}
