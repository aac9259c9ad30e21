import { uptime } from 'node:os';
import type { Clock } from '@cloudless/base';
import { LeaseTimer, type ContainerLease } from '@cloudless/runtime';
import type { RecordedLease } from './container-record.js';

export interface KeptLeaseDeps {
  readonly clock: Clock;
  /** Called once, when the lease ends. */
  readonly onEnd: (graceMs: number) => void;
  /** Writes `recorded` to disk. */
  readonly keep: () => void;
}

/**
 * A renewed lease is written when the recorded lease ends earlier by more than this share of its
 * duration. A lease that a new supervisor resumes therefore ends too early by at most this share.
 */
const KEEP_SHARE = 0.25;

/**
 * Lease of a container that survives its supervisor. It is not flushed to disk, because a lease
 * never survives a restart of the machine.
 */
export class KeptLease {
  private readonly timer: LeaseTimer;
  private onRecord: RecordedLease | undefined;
  private exact: RecordedLease | undefined;

  constructor(private readonly deps: KeptLeaseDeps) {
    this.timer = new LeaseTimer(deps.clock, deps.onEnd);
  }

  /** Whether the lease has expired, even if its timer has not fired yet. */
  get hasEnded(): boolean {
    return (
      this.timer.hasEnded ||
      (this.exact !== undefined && uptime() >= this.exact.endsAtUptimeSeconds)
    );
  }

  /** Lease for the record of the container; undefined without a lease. */
  get recorded(): RecordedLease | undefined {
    return this.onRecord;
  }

  /** Newest lease, also when it has expired. The recorded lease may be slightly older. */
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
    // A lease that ends earlier than the recorded lease is written at once.
    if (
      isNear &&
      endsAtUptimeSeconds >= onRecord.endsAtUptimeSeconds &&
      lease.graceMs === onRecord.graceMs
    )
      return;
    this.record({ ...lease, endsAtUptimeSeconds });
  }

  /**
   * Resumes the lease that an earlier supervisor recorded. When it has expired, the container is
   * stopped at once with the remaining grace period.
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

  /** Writes the lease. After a failure, the next renewal tries again. */
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
