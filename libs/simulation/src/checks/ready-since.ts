import type { RecordChange } from '@cloudless/cluster-state';
import type { ReplicaRecord } from '@cloudless/api/store';
import { replicaChanges } from './commit-changes.js';

/**
 * Since when each replica has been ready as far as a coordinator knows, by its own clock. A new one
 * knows it anew.
 */
export class ReadySince {
  private readonly since = new Map<string, number>();

  /** @param replicas - Those that are there at the start. */
  constructor(replicas: Iterable<ReplicaRecord>, nowMs: number) {
    for (const { id, ready } of replicas) if (ready) this.since.set(id, nowMs);
  }

  apply(changes: readonly RecordChange[], nowMs: number): void {
    for (const { before, after } of replicaChanges(changes)) {
      const { id } = (after ?? before) as ReplicaRecord;
      const goesOn =
        before?.ready === true && after?.ready === true && before.containerId === after.containerId;
      if (after?.ready !== true) this.since.delete(id);
      else if (!goesOn) this.since.set(id, nowMs);
    }
  }

  /** How long each ready one has been so now, milliseconds. */
  durationsMs(nowMs: number): ReadonlyMap<string, number> {
    return new Map([...this.since].map(([id, since]) => [id, nowMs - since]));
  }
}
