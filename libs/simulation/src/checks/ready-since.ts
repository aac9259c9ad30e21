import type { RecordChange } from '@cloudless/cluster-state';
import type { ReplicaRecord } from '@cloudless/api/store';
import { findReplicaChanges } from './commit-changes.js';

/**
 * Time since which one coordinator has seen each replica ready, by that coordinator's clock. A new
 * coordinator starts to count again.
 */
export class ReadySince {
  private readonly since = new Map<string, number>();

  /** @param replicas - Replicas at the start of the coordinator. */
  constructor(replicas: Iterable<ReplicaRecord>, nowMs: number) {
    for (const { id, ready } of replicas) if (ready) this.since.set(id, nowMs);
  }

  /** Applies the changes of a commit that the coordinator's view shows. */
  apply(changes: readonly RecordChange[], nowMs: number): void {
    for (const { before, after } of findReplicaChanges(changes)) {
      const { id } = (after ?? before) as ReplicaRecord;
      const staysReady =
        before?.ready === true && after?.ready === true && before.containerId === after.containerId;
      if (after?.ready !== true) this.since.delete(id);
      else if (!staysReady) this.since.set(id, nowMs);
    }
  }

  /** Returns for each ready replica how long it has been ready, milliseconds. */
  durationsMs(nowMs: number): ReadonlyMap<string, number> {
    return new Map([...this.since].map(([id, since]) => [id, nowMs - since]));
  }
}
