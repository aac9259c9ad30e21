/** Replicas whose removal some readers have not applied yet. */
interface Barrier {
  /** A reader that has applied this revision no longer chooses the replicas. */
  readonly revision: bigint;
  readonly replicaIds: Set<string>;
  readonly waitsFor: Set<object>;
}

/**
 * Finds out when no connected reader of a feed chooses a leaving replica for new connections any
 * more. A reader that disconnects is not waited for.
 */
export class RemovalBarriers {
  private readonly barriers = new Set<Barrier>();
  private readonly gone = new Set<string>();

  /**
   * @param onGone - Called once for each replica, as soon as all readers have applied its removal.
   */
  constructor(private readonly onGone: (replicaIds: readonly string[]) => void) {}

  /** Number of barriers that are waited for. */
  get size(): number {
    return this.barriers.size;
  }

  /** Number of replicas that some reader may still choose. */
  get replicaCount(): number {
    let count = 0;
    for (const { replicaIds } of this.barriers) count += replicaIds.size;
    return count;
  }

  /** Returns true when all readers have applied the removal of a replica. */
  isGone(replicaId: string): boolean {
    return this.gone.has(replicaId);
  }

  /**
   * Waits until readers have applied a revision.
   * @param readers - The connected readers that have not applied the revision.
   */
  add(replicaIds: Iterable<string>, revision: bigint, readers: Iterable<object>): void {
    const barrier = { revision, replicaIds: new Set(replicaIds), waitsFor: new Set(readers) };
    if (barrier.replicaIds.size === 0) return;
    this.barriers.add(barrier);
    this.settle(barrier);
  }

  /** Records that a reader has applied everything up to a revision. */
  acknowledge(reader: object, revision: bigint): void {
    for (const barrier of this.barriers)
      if (barrier.revision <= revision && barrier.waitsFor.delete(reader)) this.settle(barrier);
  }

  /** Waits for another reader instead. */
  replaceReader(reader: object, successor: object): void {
    for (const { waitsFor } of this.barriers) if (waitsFor.delete(reader)) waitsFor.add(successor);
  }

  /** Stops waiting for a reader that has disconnected. */
  removeReader(reader: object): void {
    for (const barrier of this.barriers) if (barrier.waitsFor.delete(reader)) this.settle(barrier);
  }

  /** Forgets a replica that has ended. */
  removeReplica(replicaId: string): void {
    this.gone.delete(replicaId);
    for (const barrier of this.barriers) {
      barrier.replicaIds.delete(replicaId);
      if (barrier.replicaIds.size === 0) this.barriers.delete(barrier);
    }
  }

  private settle(barrier: Barrier): void {
    if (barrier.waitsFor.size > 0) return;
    this.barriers.delete(barrier);
    for (const replicaId of barrier.replicaIds) this.gone.add(replicaId);
    this.onGone([...barrier.replicaIds]);
  }
}
