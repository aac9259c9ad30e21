import { errorFields, type Clock, type Log, type Random, type Timer } from '@cloudless/base';
import { createKeyAndCsr, readCsr } from '@cloudless/identity/x509';
import type { ClusterIdentities } from './cluster-identities.js';

export interface ServerCertificateOptions {
  readonly identities: ClusterIdentities;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Lifetime of each certificate, milliseconds. */
  readonly lifetimeMs: number;
  /** Names by which clients address this coordinator. */
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
}

/** A private key with its certificate chain, PEM. The key is secret. */
export interface KeyAndChain {
  readonly keyPem: string;
  readonly chainPem: string;
}

/** Share of the lifetime after which the certificate is renewed, and how much it varies. */
const RENEW_AT = 0.5;
const JITTER = 0.1;
/** Pause after a failed renewal, as a share of the lifetime: several attempts before the expiry. */
const RETRY_AT = 1 / 20;
const MAX_RETRY_MS = 60_000;

/**
 * The TLS certificate of this coordinator, renewed from half of its life and when another generation
 * of the certificate authority signs. Key and certificate live in memory only: each start makes new
 * ones, so no file of them can leak.
 */
export class ServerCertificate {
  private readonly listeners = new Set<() => void>();
  private readonly unsubscribe: () => void;
  private timer: Timer | undefined;
  private isClosed = false;
  private renewing: Promise<void> | undefined;

  private constructor(
    private readonly options: ServerCertificateOptions,
    private issued: IssuedServerCertificate,
  ) {
    this.unsubscribe = options.identities.onChange(() => {
      if (options.identities.serverGeneration !== this.issued.generation) this.startRenewal();
    });
    this.schedule();
  }

  /** Issues the first certificate. */
  static async open(options: ServerCertificateOptions): Promise<ServerCertificate> {
    return new ServerCertificate(options, await issue(options));
  }

  /** The current key and chain. */
  getContext(): KeyAndChain {
    return this.issued;
  }

  /** Wall-clock milliseconds of the expiry of the current certificate. */
  get notAfterMs(): number {
    return this.issued.notAfterMs;
  }

  /** Calls the listener when there is a new certificate. */
  onContextChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.unsubscribe();
    this.timer?.cancel();
    await this.renewing;
  }

  private schedule(): void {
    const { lifetimeMs, random } = this.options;
    this.arm(lifetimeMs * (RENEW_AT + JITTER * (random.next() - 0.5)));
  }

  private arm(delayMs: number): void {
    this.timer?.cancel();
    if (!this.isClosed)
      this.timer = this.options.clock.setTimer(delayMs, () => this.startRenewal());
  }

  private startRenewal(): void {
    if (this.isClosed) return;
    this.renewing ??= this.renew().finally(() => (this.renewing = undefined));
  }

  private async renew(): Promise<void> {
    const { log, identities, lifetimeMs } = this.options;
    try {
      // Again when the authority has changed meanwhile.
      do {
        this.issued = await issue(this.options);
      } while (identities.serverGeneration !== this.issued.generation);
      this.schedule();
      const { generation, notAfterMs } = this.issued;
      log.info('server certificate renewed', { generation, notAfter: formatTime(notAfterMs) });
      for (const listener of this.listeners) listener();
    } catch (reason) {
      log.error('server certificate not renewed', errorFields(reason));
      this.arm(Math.min(MAX_RETRY_MS, lifetimeMs * RETRY_AT));
    }
  }
}

interface IssuedServerCertificate extends KeyAndChain {
  readonly notAfterMs: number;
  readonly generation: number;
}

async function issue({
  identities,
  lifetimeMs,
  dnsNames,
  ipAddresses,
}: ServerCertificateOptions): Promise<IssuedServerCertificate> {
  const { keyPem, csr } = await createKeyAndCsr();
  const { publicKey } = await readCsr(csr);
  const { pem, notAfterMs, generation } = await identities.issueServerCertificate({
    publicKey,
    lifetimeMs,
    dnsNames,
    ipAddresses,
  });
  return { keyPem, chainPem: pem, notAfterMs, generation };
}

function formatTime(ms: number): string {
  return new Date(ms).toISOString();
}
