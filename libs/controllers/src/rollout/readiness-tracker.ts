import type { ReplicaRecord } from '@cloudless/api/store';
import type { Clock } from '@cloudless/base';
import type { ClusterState, RecordChange } from '@cloudless/cluster-state';
import type { NodeDirectory } from '../node/node-directory.js';

/**
 * Tracks for how long each replica has been ready, on the coordinator's monotonic clock; no wall
 * clock is used. After a restart of the coordinator every time starts at 0, which only delays
 * voluntary stops.
 */
export class ReadinessTracker {
  /** Time at which each ready replica became ready, by replica id. */
  private readonly readySince = new Map<string, number>();
  /** Duration of the last readiness of replicas that are not ready, by replica id. */
  private readonly lastReadyMs = new Map<string, number>();
  private readonly unsubscribe: () => void;

  constructor(
    state: ClusterState,
    private readonly nodes: NodeDirectory,
    private readonly clock: Clock,
  ) {
    for (const { value } of state.view().replicas()) this.track(undefined, value);
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
    const since = this.readySince.get(replica.id);
    if (since === undefined || !replica.desiredRunning || !this.nodes.isAlive(replica.nodeId))
      return undefined;
    return this.clock.now() - since;
  }

  /**
   * Returns the milliseconds for which the replica was ready before it last stopped being ready; 0
   * for a replica that this coordinator never saw ready.
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
    const id = (after ?? before)?.id;
    if (id === undefined) return;
    if (after === undefined) this.lastReadyMs.delete(id);
    if (after === undefined || !after.ready) {
      const since = this.readySince.get(id);
      if (since !== undefined && after !== undefined)
        this.lastReadyMs.set(id, this.clock.now() - since);
      this.readySince.delete(id);
      return;
    }
    const sameContainer = before?.ready === true && before.containerId === after.containerId;
    if (!sameContainer || !this.readySince.has(after.id))
      this.readySince.set(after.id, this.clock.now());
  }
}
