import { CertificateAuthority, createKeyAndCsr, readCsr } from '@cloudless/identity/x509';
import type { CertificateRequest } from '@cloudless/identity/x509';
import type { SpiffeKind } from '@cloudless/identity';
import type { ClientTls } from '../client/tls/client-tls.js';
import type { ServerTls } from '../server/transport/tls-acceptor.js';

/** Key and certificates of one party. */
export interface TestCredential {
  readonly keyPem: string;
  readonly chainPem: string;
  readonly serial: string;
}

const HOUR_MS = 3_600_000;
const TRUST_DOMAIN = 'cloudless';

/** SPIFFE ID of the server of {@link TestCluster}. */
export const SERVER_ID = 'spiffe://cloudless/controller/coordinator';

/** A certificate authority for tests, on the clock of the machine as TLS is. */
export class TestCluster {
  private constructor(private readonly authority: CertificateAuthority) {}

  static async create(trustDomain = TRUST_DOMAIN): Promise<TestCluster> {
    const options = { trustDomain, generation: 1, nowMs: Date.now() };
    const { authority } = await CertificateAuthority.create(options);
    return new TestCluster(authority);
  }

  get bundlePem(): string {
    return this.authority.rootPem;
  }

  get rootSha256(): string {
    return this.authority.rootSha256;
  }

  /** Issues a certificate, by default for one hour from now. */
  async issue(
    kind: SpiffeKind,
    id: string,
    options: Partial<CertificateRequest> = {},
  ): Promise<TestCredential> {
    const { keyPem, csr } = await createKeyAndCsr();
    const { publicKey } = await readCsr(csr);
    const { pem, serial } = await this.authority.issue({
      id: { trustDomain: TRUST_DOMAIN, kind, id },
      publicKey,
      lifetimeMs: HOUR_MS,
      nowMs: Date.now(),
      usage: kind === 'controller' ? 'both' : 'client',
      ...options,
    });
    return { keyPem, chainPem: pem, serial };
  }

  /** Issues a certificate for the server {@link SERVER_ID}. */
  issueServer(options: Partial<CertificateRequest> = {}): Promise<TestCredential> {
    return this.issue('controller', 'coordinator', options);
  }

  /** Returns the `tls` option of a client, without a certificate unless `credential` is given. */
  toClientTls(credential?: TestCredential): ClientTls {
    return {
      keyPem: credential?.keyPem,
      chainPem: credential?.chainPem,
      bundlePem: this.bundlePem,
      serverIds: [SERVER_ID],
      trustDomain: TRUST_DOMAIN,
    };
  }
}

/** The `tls` option of a server, whose credential a test can replace. */
export class TestServerTls implements ServerTls {
  private readonly listeners = new Set<() => void>();

  constructor(private credential: Pick<TestCredential, 'keyPem' | 'chainPem'>) {}

  /** Number of subscriptions. */
  get subscriptions(): number {
    return this.listeners.size;
  }

  getContext(): Pick<TestCredential, 'keyPem' | 'chainPem'> {
    return this.credential;
  }

  onContextChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  replace(credential: Pick<TestCredential, 'keyPem' | 'chainPem'>): void {
    this.credential = credential;
    for (const listener of this.listeners) listener();
  }
}
