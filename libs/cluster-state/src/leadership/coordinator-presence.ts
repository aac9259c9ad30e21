import type { CoordinatorRecord } from '@cloudless/api/store';
import {
  backoffDelayMs,
  errorFields,
  errorKindOf,
  sleep,
  type Clock,
  type Log,
  type Random,
} from '@cloudless/base';
import type { LeaseId, StateStore } from '@cloudless/state-store';
import { decodeRecord, encodeRecord, toKey } from '../records/records.js';

/** Time after its last renewal at which a coordinator counts as gone, milliseconds. */
const PRESENCE_LEASE_MS = 10_000;
/** Interval of the renewals, milliseconds: two may fail. */
const PRESENCE_RENEWAL_MS = 3_000;
/** Delays after a failure: the store may be down, and its other work is more urgent. */
const RETRY_POLICY = { firstMs: 500, maxMs: 3_000, jitter: 0.5 };

export interface CoordinatorPresenceDeps {
  readonly store: Pick<StateStore, 'get' | 'txn' | 'grantLease' | 'keepAlive' | 'revokeLease'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** What the store shows about this coordinator. `holder` is another one after each start. */
  readonly record: CoordinatorRecord;
}

/**
 * Keeps the record `/coordinator/<id>` of a running coordinator in the store, so that agents, users
 * and other coordinators know who is there and under which address. The record disappears 10 s
 * after the process has ended, and at once with {@link close}. Failures of the store are retried.
 */
export class CoordinatorPresence {
  private readonly stopping = new AbortController();
  private readonly running: Promise<void>;
  private lease: LeaseId | undefined;
  private hasReportedDuplicate = false;

  constructor(private readonly deps: CoordinatorPresenceDeps) {
    this.running = this.run();
  }

  /** Removes the record. A second call has no effect. */
  async close(): Promise<void> {
    this.stopping.abort();
    await this.running;
    const { lease } = this;
    this.lease = undefined;
    if (lease === undefined) return;
    await this.deps.store
      .revokeLease(lease)
      .catch((reason: unknown) =>
        this.deps.log.warn('presence could not be revoked', errorFields(reason)),
      );
  }

  private async run(): Promise<void> {
    const { clock, random, log } = this.deps;
    const { signal } = this.stopping;
    for (let failures = 0; !signal.aborted;) {
      try {
        await this.renew();
        failures = 0;
      } catch (reason) {
        failures += 1;
        log.warn('presence could not be renewed', errorFields(reason));
      }
      const delayMs =
        failures === 0 ? PRESENCE_RENEWAL_MS : backoffDelayMs(RETRY_POLICY, failures, random);
      await sleep(clock, delayMs, signal).catch(() => undefined);
    }
  }

  private async renew(): Promise<void> {
    const { store, record } = this.deps;
    const key = toKey('coordinator', record.id);
    const entry = await store.get(key);
    if (this.lease === undefined || entry === undefined) return this.announce(key);
    if (entry.lease !== this.lease)
      return this.reportDuplicate(decodeRecord('coordinator', record.id, entry.value));
    try {
      await store.keepAlive(this.lease);
    } catch (reason) {
      if (errorKindOf(reason) !== 'notFound') throw reason;
      await this.announce(key);
    }
  }

  /**
   * Writes the record with a new lease. Overwrites the record of an earlier process with the same
   * id, which may still be there for some seconds.
   */
  private async announce(key: string): Promise<void> {
    const { store, record } = this.deps;
    this.lease = undefined;
    const lease = await store.grantLease(PRESENCE_LEASE_MS);
    try {
      await store.txn([], [{ put: key, value: encodeRecord('coordinator', record).bytes, lease }]);
      this.lease = lease;
    } catch (reason) {
      await store.revokeLease(lease).catch(() => undefined); // the lease ends by itself
      throw reason;
    }
  }

  /** Logs once that a process that was started later has the same id. */
  private reportDuplicate({ id, address }: CoordinatorRecord): void {
    if (this.hasReportedDuplicate) return;
    this.hasReportedDuplicate = true;
    this.deps.log.error(
      'another coordinator has the same id: give each coordinator a --name of its own',
      { coordinatorId: id, address },
    );
  }
}
