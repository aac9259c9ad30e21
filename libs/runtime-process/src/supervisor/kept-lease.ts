import { uptime } from 'node:os';
import type { Clock } from '@cloudless/base';
import { LeaseTimer, type ContainerLease } from '@cloudless/runtime';
import type { RecordedLease } from './container-record.js';

/** What a {@link KeptLease} works with. */
export interface KeptLeaseDeps {
  readonly clock: Clock;
  /** Called once, when the lease ends. */
  readonly onEnd: (graceMs: number) => void;
  /** Writes `recorded` down. */
  readonly keep: () => void;
}

/**
 * A new end is written down when the one on record is older than this share of the lease: at worst
 * it ends so much too early.
 */
const KEEP_SHARE = 0.25;

/**
 * A container's lease that outlives its supervisor. Not flushed to disk: nothing of it outlives the
 * machine's boot.
 */
export class KeptLease {
  private readonly timer: LeaseTimer;
  private onRecord: RecordedLease | undefined;
  private exact: RecordedLease | undefined;

  constructor(private readonly deps: KeptLeaseDeps) {
    this.timer = new LeaseTimer(deps.clock, deps.onEnd);
  }

  /** Whether the lease has expired, also when its timer has not fired yet. */
  get hasEnded(): boolean {
    return (
      this.timer.hasEnded ||
      (this.exact !== undefined && uptime() >= this.exact.endsAtUptimeSeconds)
    );
  }

  /** What is to be on record; undefined without a lease. */
  get recorded(): RecordedLease | undefined {
    return this.onRecord;
  }

  /** The newest lease, also when it has expired; the record may be slightly older. */
  get newest(): RecordedLease | undefined {
    return this.exact;
  }

  renew(lease: ContainerLease | undefined): void {
    if (this.timer.hasEnded) return;
    this.timer.renew(lease);
    if (this.timer.hasEnded) return;
    if (lease === undefined) {
      this.exact = undefined;
      return this.record(undefined);
    }
    const endsAtUptimeSeconds = uptime() + lease.leaseMs / 1_000;
    this.exact = { ...lease, endsAtUptimeSeconds };
    const { onRecord } = this;
    const isNear =
      onRecord !== undefined &&
      endsAtUptimeSeconds - onRecord.endsAtUptimeSeconds < (lease.leaseMs / 1_000) * KEEP_SHARE;
    // One that ends earlier than the record says is written down at once.
    if (
      isNear &&
      endsAtUptimeSeconds >= onRecord.endsAtUptimeSeconds &&
      lease.graceMs === onRecord.graceMs
    )
      return;
    this.record({ ...lease, endsAtUptimeSeconds });
  }

  /**
   * Goes on with what an earlier supervisor wrote down; at once to its end when that has passed,
   * with what is left of the grace.
   */
  resume(lease: RecordedLease): void {
    this.onRecord = lease;
    this.exact = lease;
    const leaseMs = (lease.endsAtUptimeSeconds - uptime()) * 1_000;
    this.timer.renew({
      leaseMs: Math.max(0, leaseMs),
      graceMs: lease.graceMs + Math.min(0, leaseMs),
    });
  }

  /** What could not be written down is tried again with the next renewal. */
  private record(lease: RecordedLease | undefined): void {
    const before = this.onRecord;
    this.onRecord = lease;
    try {
      this.deps.keep();
    } catch (reason) {
      this.onRecord = before;
      throw reason;
    }
  }

  cancel(): void {
    this.timer.cancel();
  }
}
