import type { UserClient } from '@cloudless/api';
import { sleep } from '@cloudless/base';
import type { CurrentIdentity, RenewalIo } from './current-identity.js';

/** Part of the life of a certificate after which the certificate is renewed. */
const RENEWAL_POINT = 0.5;
/** Part of the life of a certificate between two attempts. */
const RETRY_INTERVAL = 0.05;
/** Longest time between two looks at the wall clock, milliseconds. */
const MAX_SLEEP_MS = 3_600_000;
/** Shortest time between two attempts, milliseconds. */
const MIN_RETRY_MS = 1_000;

/**
 * Renews the identity of a command from half of its life on, over the connection of the command: the
 * coordinator then accepts the open calls of this connection beyond the end of the old certificate.
 */
export class IdentityRenewal {
  private readonly stopping = new AbortController();
  private running: Promise<void> | undefined;
  private attempt: Promise<void> | undefined;

  constructor(
    private readonly io: RenewalIo,
    private readonly identity: CurrentIdentity,
    private readonly getClient: () => UserClient,
  ) {}

  /** Starts to renew. Called with the first call of the command. Never throws. */
  start(): void {
    this.running ??= this.run().catch(() => undefined);
  }

  /**
   * Waits for a renewal that is in progress, so that short commands renew too.
   * @param timeoutMs - Longest wait.
   */
  async finish(timeoutMs: number): Promise<void> {
    const { clock, signal } = this.io;
    if (this.attempt !== undefined)
      await Promise.race([this.attempt, sleep(clock, timeoutMs, signal)]).catch(() => undefined);
    this.stopping.abort();
  }

  /** Waits for the attempt in progress, if there is one. */
  async waitForAttempt(): Promise<void> {
    await this.attempt;
  }

  private async run(): Promise<void> {
    const { clock } = this.io;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const { notBeforeMs, notAfterMs } = this.identity.stored;
      const lifeMs = notAfterMs - notBeforeMs;
      const dueMs = notBeforeMs + lifeMs * RENEWAL_POINT;
      const delayMs = dueMs - clock.wallTime();
      if (delayMs > 0) {
        // The timers of a machine stand still while the machine sleeps, its wall clock does not.
        await sleep(clock, Math.min(delayMs, MAX_SLEEP_MS), signal);
        continue;
      }
      this.attempt = this.renew();
      await this.attempt;
      this.attempt = undefined;
      await sleep(clock, Math.max(MIN_RETRY_MS, lifeMs * RETRY_INTERVAL), signal);
    }
  }

  /** Makes one attempt. A failure is not reported: the old certificate is valid for a long time. */
  private async renew(): Promise<void> {
    try {
      // Creates keys and certificate requests, which is much code.
      const { renewIdentity } = await import('./renew-identity.js');
      await renewIdentity(this.io, this.identity, this.getClient());
    } catch {
      // The next attempt follows.
    }
  }
}
