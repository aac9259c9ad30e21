import {
  backoffDelayMs,
  CloudlessError,
  errorFields,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import { toServiceKey } from '../model/network-model.js';
import type { CoordinatorConnection, HealthReport } from '../ports.js';

/** Reports that are sent at a time. */
const MAX_CALLS = 8;
/** Delay after a report that did not arrive. */
const RETRY: BackoffPolicy = { firstMs: 500, maxMs: 30_000, jitter: 0.5 };
/** Kinds of errors for which the same report fails again. */
const FINAL: ReadonlySet<string> = new Set(['denied', 'notFound', 'precondition', 'invalid']);

/**
 * Sends the health of endpoints to the coordinator. Only the newest report of each endpoint is kept
 * while none can be sent.
 */
export class HealthReports {
  /** By service and id of the endpoint. */
  private readonly pending = new Map<string, HealthReport>();
  private connection: CoordinatorConnection | undefined;
  private retryTimer: Timer | undefined;
  /** Keys of the reports under way: reports of one endpoint must not overtake each other. */
  private readonly calls = new Set<string>();
  private failures = 0;

  constructor(
    private readonly deps: { readonly clock: Clock; readonly random: Random; readonly log: Log },
  ) {}

  /** Number of endpoints whose health the coordinator does not know yet. */
  get size(): number {
    return this.pending.size;
  }

  put(report: HealthReport): void {
    const key = `${toServiceKey(report.namespace, report.service)}/${report.endpointId}`;
    // At the end, behind those that wait for longer.
    this.pending.delete(key);
    this.pending.set(key, report);
    this.send();
  }

  /** Sends what waits over a new connection; undefined: there is none at the moment. */
  setConnection(connection: CoordinatorConnection | undefined): void {
    this.connection = connection;
    this.failures = 0;
    this.retryTimer?.cancel();
    this.retryTimer = undefined;
    this.send();
  }

  close(): void {
    this.pending.clear();
    this.setConnection(undefined);
  }

  private send(): void {
    for (const [key, report] of this.pending) {
      if (this.connection === undefined || this.retryTimer !== undefined) return;
      if (this.calls.size >= MAX_CALLS) return;
      if (this.calls.has(key)) continue;
      this.pending.delete(key);
      void this.call(key, report, this.connection);
    }
  }

  private async call(
    key: string,
    report: HealthReport,
    connection: CoordinatorConnection,
  ): Promise<void> {
    const { clock, random, log } = this.deps;
    this.calls.add(key);
    try {
      await connection.reportHealth(report);
      this.failures = 0;
    } catch (reason) {
      if (reason instanceof CloudlessError && FINAL.has(reason.kind)) {
        log.debug('the health of an endpoint was refused', { key, ...errorFields(reason) });
      } else {
        // A newer report of the endpoint replaces this one.
        if (!this.pending.has(key)) this.pending.set(key, report);
        if (this.connection === connection && this.retryTimer === undefined) {
          this.failures += 1;
          log[this.failures === 1 ? 'warn' : 'debug'](
            'the health of endpoints is not reported; the proxy tries again',
            { waiting: this.pending.size, ...errorFields(reason) },
          );
          this.retryTimer = clock.setTimer(backoffDelayMs(RETRY, this.failures, random), () => {
            this.retryTimer = undefined;
            this.send();
          });
        }
      }
    } finally {
      this.calls.delete(key);
    }
    this.send();
  }
}
