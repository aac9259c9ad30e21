import type { ReplicaRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import type { ClusterState, RecordChange } from '@cloudless/cluster-state';
import type { NodeDirectory } from '../node/node-directory.js';

/** The readiness of replicas at one moment, see {@link ReadinessTracker.freeze}. */
export interface FrozenReadiness extends Pick<ReadinessTracker, 'readyForMs'> {
  close(): void;
}

/**
 * The times of the replicas that have changed since a moment, as they were then: by uid of the
 * workload, then by sequence number. Undefined: the replica was not ready.
 */
type FormerTimes = Map<string, Map<number, number | undefined>>;

/**
 * Tracks for how long each replica has been ready, on the coordinator's monotonic clock; no wall
 * clock is used. After a restart of the coordinator every time starts at 0, which only delays
 * voluntary stops.
 */
export class ReadinessTracker {
  /**
   * Time at which each ready replica became ready, by uid of the workload and by sequence number: a
   * pass over a workload then reads one small map. Whole milliseconds, rounded up: other numbers
   * take 16 bytes more in a map.
   */
  private readonly readySince = new Map<string, Map<number, number>>();
  /**
   * Duration of the last readiness of replicas that are not ready and not ordered to stop, by
   * replica id. A lost replica is ordered to stop, and its record may stay for weeks. Whole
   * milliseconds, rounded down.
   */
  private readonly lastReadyMs = new Map<string, number>();
  private readonly frozen = new Set<FormerTimes>();
  private readonly unsubscribe: () => void;

  constructor(
    state: ClusterState,
    private readonly nodes: NodeDirectory,
    private readonly clock: Clock,
  ) {
    const now = Math.ceil(this.clock.now());
    for (const { value } of state.view().replicas()) if (value.ready) this.setSince(value, now);
    this.unsubscribe = state.subscribe((changes) => this.apply(changes));
  }

  close(): void {
    this.unsubscribe();
  }

  /**
   * Returns the milliseconds since the replica became ready; undefined when the replica is not
   * ready or is ordered to stop, or its node has no live session.
   */
  readyForMs(replica: ReplicaRecord): number | undefined {
    const since = this.getSince(replica);
    if (since === undefined || !replica.desiredRunning || !this.nodes.isAlive(replica.nodeId))
      return undefined;
    return Math.max(0, this.clock.now() - since);
  }

  /**
   * Returns the readiness of now. It stays the same while time passes and replicas change. Close it
   * after use.
   * @param isAlive - Returns true for a node with a live session now.
   */
  freeze(isAlive: (nodeId: string) => boolean): FrozenReadiness {
    const nowMs = this.clock.now();
    const former: FormerTimes = new Map();
    this.frozen.add(former);
    return {
      readyForMs: (replica) => {
        const times = former.get(replica.uid);
        const sequence = Number(replica.sequence);
        const since = times?.has(sequence) === true ? times.get(sequence) : this.getSince(replica);
        if (since === undefined || !replica.desiredRunning || !isAlive(replica.nodeId))
          return undefined;
        return Math.max(0, nowMs - since);
      },
      close: () => this.frozen.delete(former),
    };
  }

  /**
   * Returns the milliseconds for which the replica was ready before it last stopped being ready; 0
   * for a replica that this coordinator never saw ready, or that is ordered to stop.
   */
  lastReadyForMs(replicaId: string): number {
    return this.lastReadyMs.get(replicaId) ?? 0;
  }

  private apply(changes: readonly RecordChange[]): void {
    for (const { kind, before, after } of changes) {
      if (kind === 'replica') this.track(before, after);
    }
  }

  private track(before: ReplicaRecord | undefined, after: ReplicaRecord | undefined): void {
    const replica = after ?? before;
    if (replica === undefined) return;
    const { id } = replica;
    const isWanted = after?.desiredRunning === true;
    if (!isWanted) this.lastReadyMs.delete(id);
    // Most changes are on the way to readiness: there is no time before, and none after.
    if (before?.ready !== true && after?.ready !== true) return;
    // Only ready replicas have a time. The map of a large workload is in no cache of the processor,
    // so a look-up takes long.
    const since = before?.ready === true ? this.getSince(before) : undefined;
    for (const former of this.frozen) keepFirst(former, replica, since);
    if (after === undefined || !after.ready) {
      if (since === undefined) return;
      if (isWanted) this.lastReadyMs.set(id, Math.max(0, Math.floor(this.clock.now() - since)));
      this.deleteSince(replica);
      return;
    }
    const sameContainer = before?.ready === true && before.containerId === after.containerId;
    if (!sameContainer || since === undefined) this.setSince(after, Math.ceil(this.clock.now()));
  }

  private getSince({ uid, sequence }: ReplicaRecord): number | undefined {
    return this.readySince.get(uid)?.get(Number(sequence));
  }

  private setSince({ uid, sequence }: ReplicaRecord, nowMs: number): void {
    const times = this.readySince.get(uid);
    if (times === undefined) this.readySince.set(uid, new Map([[Number(sequence), nowMs]]));
    else times.set(Number(sequence), nowMs);
  }

  private deleteSince({ uid, sequence }: ReplicaRecord): void {
    const times = this.readySince.get(uid);
    times?.delete(Number(sequence));
    if (times?.size === 0) this.readySince.delete(uid);
  }
}

function keepFirst(
  former: FormerTimes,
  { uid, sequence }: ReplicaRecord,
  since: number | undefined,
): void {
  const times = former.get(uid) ?? new Map<number, number | undefined>();
  if (!times.has(Number(sequence))) times.set(Number(sequence), since);
  former.set(uid, times);
}
