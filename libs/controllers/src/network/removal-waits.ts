import type { Clock, Log, Timer } from '@cloudless/base';
import { RemovalBarriers } from './removal-barriers.js';

/** A proxy that reads the feed. */
export interface RemovalReader {
  readonly nodeId: string;
  /** Revision of the newest complete update that the proxy has applied. */
  readonly applied: bigint;
}

/** Time for which a removal waits for a proxy that does not apply updates, milliseconds. */
const MAX_WAIT_MS = 3_000;
/** Time for proxies to connect to a new feed, longer than their delay after a failure, ms. */
const CONNECT_MS = 5_000;

export interface RemovalWaitsOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Called once for each replica that no proxy chooses for new connections any more. */
  readonly onGone: (replicaIds: readonly string[]) => void;
}

/**
 * Decides which proxies the stop of a leaving replica waits for: all that are connected and apply
 * updates, and in the first seconds of a feed also those that have not connected yet. A proxy that
 * does not apply an update in time is not waited for until it is up to date again, so that one
 * hung proxy cannot delay every stop in the cluster.
 */
export class RemovalWaits {
  private readonly barriers: RemovalBarriers;
  private readonly readers = new Set<RemovalReader>();
  private readonly late = new Set<RemovalReader>();
  /** Nodes whose proxies were late and have not caught up since. */
  private readonly lateNodes = new Set<string>();
  /** Nodes whose proxies have not connected to a new feed yet. */
  private readonly expected = new Map<string, object>();

  private readonly timers = new Set<Timer>();

  constructor(private readonly options: RemovalWaitsOptions) {
    this.barriers = new RemovalBarriers(options.onGone);
  }

  /** Number of replicas that some proxy may still choose. */
  get replicaCount(): number {
    return this.barriers.replicaCount;
  }

  /** Returns true when no proxy that is waited for chooses a replica any more. */
  isGone(replicaId: string): boolean {
    return this.barriers.isGone(replicaId);
  }

  /** Also waits for the proxies of these nodes until they connect, for a few seconds. */
  expect(nodeIds: Iterable<string>): void {
    for (const nodeId of nodeIds) this.expected.set(nodeId, {});
    if (this.expected.size === 0) return;
    this.setTimer(CONNECT_MS, () => {
      for (const absent of this.expected.values()) this.barriers.removeReader(absent);
      this.expected.clear();
    });
  }

  open(reader: RemovalReader): void {
    const { nodeId } = reader;
    this.readers.add(reader);
    if (this.lateNodes.has(nodeId)) this.late.add(reader);
    const absent = this.expected.get(nodeId);
    if (absent === undefined) return;
    this.expected.delete(nodeId);
    this.barriers.replaceReader(absent, reader);
  }

  /**
   * Records that a proxy has applied everything up to a revision.
   * @param newest - Revision of the newest update.
   */
  acknowledge(reader: RemovalReader, revision: bigint, newest: bigint): void {
    if (revision >= newest && this.late.delete(reader)) this.lateNodes.delete(reader.nodeId);
    this.barriers.acknowledge(reader, revision);
  }

  close(reader: RemovalReader): void {
    this.readers.delete(reader);
    this.late.delete(reader);
    this.barriers.removeReader(reader);
  }

  /** Begins to wait until the proxies have applied the removal of replicas at a revision. */
  begin(replicaIds: Iterable<string>, revision: bigint): void {
    const behind = [...this.readers].filter(
      (reader) => reader.applied < revision && !this.late.has(reader),
    );
    this.barriers.add(replicaIds, revision, [...behind, ...this.expected.values()]);
    if (behind.length > 0) this.setTimer(MAX_WAIT_MS, () => this.endWait(behind, revision));
  }

  /** Forgets a replica that has ended. */
  removeReplica(replicaId: string): void {
    this.barriers.removeReplica(replicaId);
  }

  /** Ends all waits without a report. */
  stop(): void {
    for (const timer of this.timers) timer.cancel();
    this.timers.clear();
  }

  private setTimer(delayMs: number, action: () => void): void {
    const timer = this.options.clock.setTimer(delayMs, () => {
      this.timers.delete(timer);
      action();
    });
    this.timers.add(timer);
  }

  private endWait(readers: readonly RemovalReader[], revision: bigint): void {
    for (const reader of readers) {
      const { nodeId, applied } = reader;
      if (!this.readers.has(reader) || applied >= revision) continue;
      if (!this.late.has(reader))
        this.options.log.warn(
          'the network proxy of a node does not apply updates; stops do not wait for it',
          { nodeId, applied: String(applied), expected: String(revision) },
        );
      this.late.add(reader);
      this.lateNodes.add(nodeId);
      this.barriers.removeReader(reader);
    }
  }
}
