import { timestampMs } from '@bufbuild/protobuf/wkt';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { logFailure, type Clock, type Log, type Timer } from '@cloudless/base';
import type { ClusterState, EventInit } from '@cloudless/cluster-state';

export interface ExpiryWatchOptions {
  readonly state: ClusterState;
  readonly nodes: { isAlive(nodeId: string): boolean };
  readonly clock: Clock;
  readonly log: Log;
  /** Returns the wall-clock milliseconds from which on the authority cannot issue any more. */
  readonly getAuthorityExpiry: () => Promise<number>;
  /** Lifetime of certificates of nodes, milliseconds. */
  readonly nodeLifetimeMs: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Time before the expiry of the authority from which on the coordinator warns. */
const AUTHORITY_WARNING_MS = 90 * DAY_MS;
/**
 * Share of the lifetime that is left when the coordinator warns. Agents renew from half of the
 * lifetime on, and repeat a renewal that fails.
 */
const NODE_WARNING_SHARE = 0.2;
/** Events of one check at most: thousands of nodes with one problem must not fill the store. */
const MAX_EVENTS = 20;

/**
 * Warns of certificates that expire soon: of the certificate authority, and of connected nodes whose
 * agents should have renewed them.
 */
export class ExpiryWatch {
  private readonly reportedSerials = new Set<string>();
  private authorityReportedMs = Number.NEGATIVE_INFINITY;
  private authorityWarning: string | undefined;
  private timer: Timer | undefined;
  private isClosed = false;

  constructor(private readonly options: ExpiryWatchOptions) {
    this.arm(0);
  }

  close(): void {
    this.isClosed = true;
    this.timer?.cancel();
  }

  /** Returns warnings for operators, one sentence each. */
  listWarnings(): readonly string[] {
    return this.authorityWarning === undefined ? [] : [this.authorityWarning];
  }

  private arm(delayMs: number): void {
    if (this.isClosed) return;
    const { clock, nodeLifetimeMs, log } = this.options;
    this.timer = clock.setTimer(delayMs, () => {
      this.look()
        .catch((reason: unknown) => logFailure(log, 'expiry of certificates not checked', reason))
        .finally(() => this.arm(Math.min(HOUR_MS, nodeLifetimeMs * (NODE_WARNING_SHARE / 2))));
    });
  }

  private async look(): Promise<void> {
    const { state } = this.options;
    const authority = await this.checkAuthority();
    const events = [...(authority === undefined ? [] : [authority]), ...this.listNodeEvents()];
    if (events.length === 0 || this.isClosed) return;
    const transaction = state.transaction();
    for (const event of events) transaction.event(event);
    await state.commitObserved(transaction);
  }

  private async checkAuthority(): Promise<EventInit | undefined> {
    const { clock, getAuthorityExpiry } = this.options;
    const expiresAtMs = await getAuthorityExpiry();
    const nowMs = clock.wallTime();
    this.authorityWarning =
      expiresAtMs - nowMs > AUTHORITY_WARNING_MS
        ? undefined
        : `the certificate authority expires at ${new Date(expiresAtMs).toISOString()}, and nothing can join or renew from then on; rotate it with "cloudlessctl admin rotate-ca"`;
    if (this.authorityWarning === undefined || nowMs - this.authorityReportedMs < DAY_MS)
      return undefined;
    this.authorityReportedMs = nowMs;
    return {
      severity: Severity.WARNING,
      category: Category.MEMBERSHIP,
      reason: 'CertificateAuthorityExpires',
      message: this.authorityWarning,
    };
  }

  private listNodeEvents(): readonly EventInit[] {
    const { state, nodes, clock, nodeLifetimeMs } = this.options;
    const nowMs = clock.wallTime();
    const events: EventInit[] = [];
    const expiring = new Set<string>();
    for (const { value } of state.view().nodes()) {
      const { notAfter, serial = '' } = value.identity?.current ?? {};
      if (notAfter === undefined || !nodes.isAlive(value.id)) continue;
      if (timestampMs(notAfter) - nowMs > nodeLifetimeMs * NODE_WARNING_SHARE) continue;
      expiring.add(serial);
      if (this.reportedSerials.has(serial) || events.length === MAX_EVENTS) continue;
      this.reportedSerials.add(serial);
      events.push({
        severity: Severity.WARNING,
        category: Category.MEMBERSHIP,
        reason: 'NodeCertificateExpires',
        message: `the certificate of node ${value.id} expires at ${new Date(timestampMs(notAfter)).toISOString()}, and its agent has not renewed it; read the log of the agent`,
        nodeId: value.id,
      });
    }
    for (const serial of this.reportedSerials)
      if (!expiring.has(serial)) this.reportedSerials.delete(serial);
    return events;
  }
}
