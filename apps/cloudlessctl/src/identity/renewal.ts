import type { UserClient } from '@cloudless/api';
import { sleep } from '@cloudless/base';
import type { CurrentIdentity, RenewalIo } from './current-identity.js';

/** Part of the life of a certificate after which the certificate is renewed. */
const RENEWAL_POINT = 0.5;
/** Part of the life of a certificate between two attempts. */
const RETRY_INTERVAL = 0.05;
/** Longest time between two looks at the wall clock, milliseconds. */
const MAX_SLEEP_MS = 60_000;
/** Longest time between two attempts that the coordinator has asked for, milliseconds. */
const MAX_REQUESTED_RETRY_MS = 60_000;
/** Shortest time between two attempts, milliseconds. */
const MIN_RETRY_MS = 1_000;

/**
 * Renews the identity of a command from half of its life on, over the connection of the command: the
 * coordinator then accepts the open calls of this connection beyond the end of the old certificate.
 */
export class IdentityRenewal {
  private readonly stopping = new AbortController();
  private waking = new AbortController();
  private running: Promise<void> | undefined;
  private attempt: Promise<boolean> | undefined;
  /** End of the certificate whose early renewal the coordinator has asked for. */
  private requestedFor: number | undefined;
  private isRequested = false;

  constructor(
    private readonly io: RenewalIo,
    private readonly identity: CurrentIdentity,
    private readonly getClient: () => UserClient,
  ) {}

  /** Starts to renew. Called with the first call of the command. Never throws. */
  start(): void {
    this.running ??= this.run().catch(() => undefined);
  }

  /** Renews the current certificate now, once, because the coordinator asks for a renewal. */
  renewNow(): void {
    const { notAfterMs } = this.identity.stored;
    if (this.requestedFor === notAfterMs) return;
    this.requestedFor = notAfterMs;
    this.isRequested = true;
    this.waking.abort();
  }

  /**
   * Waits for a renewal that is in progress, so that short commands renew too.
   * @param timeoutMs - Longest wait.
   */
  async finish(timeoutMs: number): Promise<void> {
    const { clock, signal } = this.io;
    // A request that has just arrived starts its attempt in the next turn.
    if (this.isRequested) await new Promise((resolve) => setImmediate(resolve));
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
    while (!this.stopping.signal.aborted) {
      const { notBeforeMs, notAfterMs } = this.identity.stored;
      const lifeMs = notAfterMs - notBeforeMs;
      const delayMs = notBeforeMs + lifeMs * RENEWAL_POINT - clock.wallTime();
      if (delayMs > 0 && !this.isRequested) {
        // The timers of a machine stand still while the machine sleeps, its wall clock does not.
        await this.sleep(Math.min(delayMs, MAX_SLEEP_MS));
        continue;
      }
      this.attempt = this.renew();
      if (await this.attempt) this.isRequested = false;
      this.attempt = undefined;
      const retryMs = Math.max(MIN_RETRY_MS, lifeMs * RETRY_INTERVAL);
      await this.sleep(this.isRequested ? Math.min(retryMs, MAX_REQUESTED_RETRY_MS) : retryMs);
    }
  }

  /** Sleeps until the time is over, or until {@link renewNow} or {@link finish}. */
  private async sleep(delayMs: number): Promise<void> {
    this.waking = new AbortController();
    const signal = AbortSignal.any([this.stopping.signal, this.waking.signal]);
    await sleep(this.io.clock, delayMs, signal).catch(() => undefined);
  }

  /**
   * Makes one attempt. A failure is not reported: the old certificate is valid for a long time.
   * @returns True when this or another process has renewed the certificate.
   */
  private async renew(): Promise<boolean> {
    try {
      // Loaded when needed, because most commands do not renew.
      const { renewIdentity } = await import('./renew-identity.js');
      return await renewIdentity(this.io, this.identity, this.getClient());
    } catch {
      return false;
    }
  }
}
