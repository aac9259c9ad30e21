import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { isLive } from '../records/replicas.js';
import type { Stored } from './record-change.js';
import { SortedNumbers } from './sorted-numbers.js';

/** The ends of a set of sequence numbers; undefined when the set is empty. */
export interface SequenceEnds {
  readonly first: number | undefined;
  readonly last: number | undefined;
}

/**
 * Numbers of the replicas of a workload that have one version. Live replicas have not ended and are
 * not lost; staying replicas are live and not ordered to stop.
 */
export interface VersionCounts {
  readonly live: number;
  readonly staying: number;
  /** Staying replicas that are ready. */
  readonly ready: number;
  /** Staying replicas without a node. */
  readonly unplaced: number;
  /** Replicas that ran to completion and were not ordered to stop. */
  readonly succeeded: number;
  /** Staying replicas without a node that have a reason. */
  readonly explainedUnplaced: SequenceEnds;
  /** Staying replicas on a node that are not ready and have a reason. */
  readonly explainedUnready: SequenceEnds;
  /** Staying replicas on a node that wait for their next start, and their number. */
  readonly inBackoff: SequenceEnds;
  readonly inBackoffCount: number;
  /** Failed replicas that were not ordered to stop. */
  readonly failedWanted: SequenceEnds;
  /** Failed replicas that are not lost. */
  readonly failedPresent: SequenceEnds;
}

/** The replicas of a workload as numbers. */
export interface ReplicaCounts {
  /** Number of all records, those of ended and lost replicas included. */
  readonly total: number;
  readonly byVersion: ReadonlyMap<number, VersionCounts>;
}

/** Counts that are kept up to date with each change of a replica. */
export class RunningCounts implements ReplicaCounts {
  total = 0;
  readonly byVersion = new Map<number, RunningVersionCounts>();

  /** @param sequence - Sequence number of the replica. */
  add(replica: ReplicaRecord, sequence: number): void {
    this.total += 1;
    let counts = this.byVersion.get(replica.version);
    if (counts === undefined)
      this.byVersion.set(replica.version, (counts = new RunningVersionCounts()));
    counts.change(replica, sequence, 1);
  }

  /** @param replica - The replica as it was added. */
  delete(replica: ReplicaRecord, sequence: number): void {
    this.total -= 1;
    const counts = this.byVersion.get(replica.version);
    if (counts === undefined) return;
    counts.change(replica, sequence, -1);
    if (counts.records === 0) this.byVersion.delete(replica.version);
  }
}

class RunningVersionCounts implements VersionCounts {
  records = 0;
  live = 0;
  staying = 0;
  ready = 0;
  unplaced = 0;
  succeeded = 0;
  inBackoffCount = 0;
  readonly explainedUnplaced = new SortedNumbers();
  readonly explainedUnready = new SortedNumbers();
  readonly inBackoff = new SortedNumbers();
  readonly failedWanted = new SortedNumbers();
  readonly failedPresent = new SortedNumbers();

  change(replica: ReplicaRecord, sequence: number, by: 1 | -1): void {
    this.records += by;
    const { phase, desiredRunning, lost } = replica;
    const set = by === 1 ? 'add' : 'delete';
    if (isLive(replica) && !lost) {
      this.live += by;
      if (desiredRunning) this.changeStaying(replica, sequence, by);
    }
    if (phase === Phase.SUCCEEDED && desiredRunning) this.succeeded += by;
    if (phase === Phase.FAILED) {
      if (desiredRunning) this.failedWanted[set](sequence);
      if (!lost) this.failedPresent[set](sequence);
    }
  }

  private changeStaying(
    { ready, nodeId, reason, nextStartAt }: ReplicaRecord,
    sequence: number,
    by: 1 | -1,
  ): void {
    const set = by === 1 ? 'add' : 'delete';
    this.staying += by;
    if (ready) this.ready += by;
    if (nodeId === '') {
      this.unplaced += by;
      if (reason !== '') this.explainedUnplaced[set](sequence);
    } else if (!ready) {
      if (reason !== '') this.explainedUnready[set](sequence);
      if (nextStartAt === undefined) return;
      this.inBackoffCount += by;
      this.inBackoff[set](sequence);
    }
  }
}

/** Counts replicas one by one. */
export function countReplicas(replicas: Iterable<Stored<ReplicaRecord>>): RunningCounts {
  const counts = new RunningCounts();
  for (const { value } of replicas) counts.add(value, Number(value.sequence));
  return counts;
}
