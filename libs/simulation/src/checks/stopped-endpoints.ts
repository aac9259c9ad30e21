import { ReplicaStatus_Phase as Phase, type NetworkUpdate } from '@cloudless/api';
import type { RecordChange } from '@cloudless/cluster-state';
import type { SimProxy } from '../parts/sim-proxy.js';
import { findReplicaChanges } from './commit-changes.js';

/**
 * Shortest time for which a stop waits for a proxy that is connected, milliseconds, less than the
 * 3 s of the product because clocks drift.
 */
const SURE_WAIT_MS = 2_500;
/**
 * Time without faults after which the coordinator knows a proxy as one that applies updates at once,
 * milliseconds.
 */
const CALM_MS = 4_000;

export interface StoppedEndpointsDeps {
  readonly now: () => number;
  readonly proxies: () => Iterable<SimProxy>;
  /** Returns the address of the coordinator that leads, if any. */
  readonly leaderAddress: () => string | undefined;
  readonly reportViolation: (text: string) => void;
}

interface Stop {
  /** Time of the world at which the order was committed. */
  readonly orderedAt: number;
  /** Time of the world at which the agent ended the container. */
  readonly endedAt: number | undefined;
}

/**
 * Checks that no proxy opens a connection to a replica whose stop was confirmed: a stop waits until
 * the connected proxies no longer choose the replica, and no later update brings the replica back.
 */
export class StoppedEndpointsChecker {
  private readonly stops = new Map<string, Stop>();
  /** Revision of the commit that confirmed the stop, by replica. */
  private readonly confirmed = new Map<string, bigint>();

  constructor(private readonly deps: StoppedEndpointsDeps) {}

  /** Number of stops that were checked with a proxy that had to know. */
  checkedStops = 0;

  /** Notes that an agent requests the end of the container of a replica. */
  onContainerStop(replicaId: string): void {
    const stop = this.stops.get(replicaId);
    if (stop !== undefined && stop.endedAt === undefined)
      this.stops.set(replicaId, { ...stop, endedAt: this.deps.now() });
  }

  /** Checks one commit. */
  check(changes: readonly RecordChange[], revision: bigint): void {
    for (const { before, after } of findReplicaChanges(changes)) {
      if (after === undefined || before === undefined) continue;
      const { id } = after;
      if (before.desiredRunning && !after.desiredRunning)
        this.stops.set(id, { orderedAt: this.deps.now(), endedAt: undefined });
      if (after.phase !== Phase.STOPPED || before.phase === Phase.STOPPED) continue;
      const stop = this.stops.get(id);
      this.stops.delete(id);
      this.confirmed.set(id, revision);
      if (stop?.endedAt !== undefined) this.checkConfirmed(id, stop);
    }
  }

  /** Checks an update that a proxy has applied. */
  onApplied(proxy: SimProxy, { endpoints, complete, revision }: NetworkUpdate): void {
    if (!complete) return;
    for (const { id, replicaId, ready } of endpoints) {
      const confirmed = this.confirmed.get(replicaId);
      if (!ready || confirmed === undefined || confirmed > revision) continue;
      if (proxy.chooses(id)) this.report(proxy, replicaId, 'again after an update');
    }
  }

  private checkConfirmed(replicaId: string, stop: Stop): void {
    const { now, proxies } = this.deps;
    if (now() - stop.orderedAt >= SURE_WAIT_MS) return;
    for (const proxy of proxies()) {
      if (!this.mustKnow(proxy, stop)) continue;
      this.checkedStops += 1;
      for (const { id, replicaId: known } of proxy.model.endpoints.values())
        if (known === replicaId && proxy.chooses(id)) this.report(proxy, replicaId, 'still');
    }
  }

  /** Returns true for a proxy for which the stop of a replica had to wait. */
  private mustKnow(proxy: SimProxy, { orderedAt }: Stop): boolean {
    const { stream } = proxy;
    const calmSince = Math.max(0, orderedAt - CALM_MS);
    return (
      stream !== undefined &&
      stream.since < orderedAt &&
      stream.address === this.deps.leaderAddress() &&
      proxy.isRunning &&
      proxy.activeSince <= calmSince &&
      proxy.link.wasPerfectSince(calmSince)
    );
  }

  private report({ nodeId }: SimProxy, replicaId: string, how: string): void {
    this.deps.reportViolation(
      `the proxy of ${nodeId} ${how} chooses ${replicaId}, whose stop was confirmed`,
    );
  }
}
