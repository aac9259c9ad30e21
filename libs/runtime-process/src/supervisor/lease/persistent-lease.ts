import { uptime } from 'node:os';
import type { Clock } from '@cloudless/base';
import { LeaseTimer, type ContainerLease } from '@cloudless/runtime';
import type { RecordedLease } from '../container/container-record.js';

/** Arguments of {@link PersistentLease}. */
export interface PersistentLeaseDeps {
  readonly clock: Clock;
  /** Called once, when the lease ends, with the grace period in milliseconds. */
  readonly onEnd: (graceMs: number) => void;
  /** Must write {@link PersistentLease.recorded} to disk. */
  readonly persist: () => void;
}

/**
 * A renewed lease is written when the recorded lease ends earlier by more than this share of its
 * duration. A lease that a new supervisor resumes therefore ends too early by at most this share.
 */
const PERSIST_SHARE = 0.25;

/**
 * Lease of a container that survives its supervisor. It is not flushed to disk, because a lease
 * never survives a restart of the machine.
 */
export class PersistentLease {
  private readonly timer: LeaseTimer;
  private recordedLease: RecordedLease | undefined;
  private currentLease: RecordedLease | undefined;

  constructor(private readonly deps: PersistentLeaseDeps) {
    this.timer = new LeaseTimer(deps.clock, deps.onEnd);
  }

  /** True when the lease has expired, even if its timer has not fired yet. */
  get hasEnded(): boolean {
    return (
      this.timer.hasEnded ||
      (this.currentLease !== undefined && uptime() >= this.currentLease.endsAtUptimeSeconds)
    );
  }

  /** Lease for the record of the container; undefined without a lease. */
  get recorded(): RecordedLease | undefined {
    return this.recordedLease;
  }

  /** Newest lease, also when it has expired. The recorded lease may be slightly older. */
  get current(): RecordedLease | undefined {
    return this.currentLease;
  }

  /**
   * Renews the lease; undefined removes it. Does nothing after the end of the lease.
   * @throws The error of `persist`. The lease is renewed all the same.
   */
  renew(lease: ContainerLease | undefined): void {
    if (this.timer.hasEnded) return;
    this.timer.renew(lease);
    if (this.timer.hasEnded) return;
    if (lease === undefined) {
      this.currentLease = undefined;
      return this.persist(undefined);
    }
    const endsAtUptimeSeconds = uptime() + lease.leaseMs / 1_000;
    this.currentLease = { ...lease, endsAtUptimeSeconds };
    const { recordedLease } = this;
    const endsNearRecorded =
      recordedLease !== undefined &&
      endsAtUptimeSeconds - recordedLease.endsAtUptimeSeconds <
        (lease.leaseMs / 1_000) * PERSIST_SHARE;
    // A lease that ends earlier than the recorded lease is written at once.
    if (
      endsNearRecorded &&
      endsAtUptimeSeconds >= recordedLease.endsAtUptimeSeconds &&
      lease.graceMs === recordedLease.graceMs
    )
      return;
    this.persist({ ...lease, endsAtUptimeSeconds });
  }

  /**
   * Resumes the lease that an earlier supervisor recorded. When it has expired, the container is
   * stopped at once with the remaining grace period.
   */
  resume(lease: RecordedLease): void {
    this.recordedLease = lease;
    this.currentLease = lease;
    const leaseMs = (lease.endsAtUptimeSeconds - uptime()) * 1_000;
    this.timer.renew({
      leaseMs: Math.max(0, leaseMs),
      graceMs: lease.graceMs + Math.min(0, leaseMs),
    });
  }

  /** Writes the lease. After a failure, the next renewal writes it. */
  private persist(lease: RecordedLease | undefined): void {
    const before = this.recordedLease;
    this.recordedLease = lease;
    try {
      this.deps.persist();
    } catch (reason) {
      this.recordedLease = before;
      throw reason;
    }
  }

  /** Cancels the timer; `onEnd` is not called any more. */
  cancel(): void {
    this.timer.cancel();
  }
}
