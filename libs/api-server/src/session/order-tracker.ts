import { backoffDelayMs, type BackoffPolicy } from '@cloudless/base';

/** Delays before an order is sent again, if the agent does not acknowledge it: 1, 2, 4, 8 s. */
const RESEND_DELAYS: BackoffPolicy = { firstMs: 1_000, maxMs: 8_000 };

interface SentOrder {
  readonly revision: bigint;
  /** How often the order of this revision has been sent. */
  readonly sends: number;
  readonly dueAtMs: number;
}

/**
 * The orders of one session that the agent has not acknowledged, with the time at which each is
 * sent again. The work of a look for due orders grows with the number of these orders, not with the
 * number of replicas.
 */
export class OrderTracker {
  private readonly unacknowledged = new Map<string, SentOrder>();

  /** Number of orders that are not acknowledged. */
  get size(): number {
    return this.unacknowledged.size;
  }

  /** Adds the order of a replica that must be sent now. Has no effect on an order that is tracked. */
  add(replicaId: string, nowMs: number): void {
    if (!this.unacknowledged.has(replicaId))
      this.unacknowledged.set(replicaId, { revision: -1n, sends: 0, dueAtMs: nowMs });
  }

  /** Makes the order of a replica due at once, because the agent has requested it. */
  request(replicaId: string, nowMs: number): void {
    const known = this.unacknowledged.get(replicaId);
    if (known !== undefined) this.unacknowledged.set(replicaId, { ...known, dueAtMs: nowMs });
  }

  /** Records that an order has been sent. The delay begins anew for an order with a new revision. */
  recordSent(replicaId: string, revision: bigint, nowMs: number): void {
    const known = this.unacknowledged.get(replicaId);
    const sends = known?.revision === revision ? known.sends + 1 : 1;
    const dueAtMs = nowMs + backoffDelayMs(RESEND_DELAYS, sends);
    this.unacknowledged.set(replicaId, { revision, sends, dueAtMs });
  }

  /** Removes the order of a replica: it is acknowledged, or there is none any more. */
  delete(replicaId: string): void {
    this.unacknowledged.delete(replicaId);
  }

  /** Returns the ids of the replicas whose orders have to be sent now. */
  listDue(nowMs: number): readonly string[] {
    const due: string[] = [];
    for (const [replicaId, { dueAtMs }] of this.unacknowledged)
      if (dueAtMs <= nowMs) due.push(replicaId);
    return due;
  }
}
