import { Http2SessionManager, createGrpcTransport } from '@connectrpc/connect-node';
import {
  createCoordinatorClient,
  createIdentityClient,
  createUserClient,
  type CoordinatorClient,
  type IdentityClient,
  type UserClient,
} from '@cloudless/api';
import { parseToken } from '@cloudless/identity';
import { createKeyAndCsr, readChain } from '@cloudless/identity/x509';
import { fetchServerRoot, openTlsSocket, type ClientTls } from '@cloudless/rpc-node/tls-client';

/** Clients of one connection to a coordinator with TLS. */
export interface SecureClients {
  readonly coordinator: CoordinatorClient;
  readonly users: UserClient;
  readonly identities: IdentityClient;
  /** Closes the connection. */
  close(): void;
}

/**
 * Opens clients with one connection, which is opened again when it breaks.
 * @param getTls - Called for each connection.
 * @param token - Bearer token of a user; absent for clients with a certificate.
 */
export function openSecureClients(
  url: string,
  getTls: () => ClientTls,
  token?: string,
): SecureClients {
  const sessions = new Http2SessionManager(
    url,
    {},
    { createConnection: () => openTlsSocket(url, getTls()) },
  );
  const transport = createGrpcTransport({
    baseUrl: url,
    sessionManager: sessions,
    interceptors: [
      (next) => (request) => {
        if (token !== undefined) request.header.set('authorization', `Bearer ${token}`);
        return next(request);
      },
    ],
  });
  return {
    coordinator: createCoordinatorClient(transport),
    users: createUserClient(transport),
    identities: createIdentityClient(transport),
    close: () => sessions.abort(),
  };
}

/**
 * Opens clients that call as the user of a token.
 * @param token - Text of a user token, whose root digest the server must prove.
 */
export async function openTokenClients(url: string, token: string): Promise<SecureClients> {
  const { bundlePem, serverId, trustDomain } = await fetchServerRoot(
    url,
    readCaSha256s(token),
    AbortSignal.timeout(30_000),
  );
  return openSecureClients(url, () => ({ bundlePem, serverIds: [serverId], trustDomain }), token);
}

function readCaSha256s(token: string): readonly string[] {
  const caSha256s = parseToken(token)?.caSha256s;
  if (caSha256s === undefined) throw new Error('the text is no token');
  return caSha256s;
}

/** A user with a client certificate that is renewed over the connection of the calls. */
export class CertificateUser {
  readonly clients: SecureClients;
  /** Number of renewals so far. */
  renewals = 0;
  private readonly stopping = new AbortController();
  private running: Promise<void> = Promise.resolve();
  /** What made the newest attempt of a renewal fail; undefined: the attempt has succeeded. */
  failure: unknown;

  private constructor(
    url: string,
    private tls: ClientTls,
  ) {
    this.clients = openSecureClients(url, () => this.tls);
  }

  /** Gets a certificate with a token, and renews the certificate from half of its life on. */
  static async login(url: string, token: string): Promise<CertificateUser> {
    const byToken = await openTokenClients(url, token);
    try {
      const user = new CertificateUser(url, await requestCertificate(byToken.users));
      user.running = user.renew();
      return user;
    } finally {
      byToken.close();
    }
  }

  /** The certificate, its issuers and the trusted roots, in PEM. */
  get certificate(): { readonly chainPem: string; readonly bundlePem: string } {
    return { chainPem: this.tls.chainPem ?? '', bundlePem: this.tls.bundlePem };
  }

  /** Opens clients with a connection of their own, with the newest certificate. */
  openClients(url: string): SecureClients {
    return openSecureClients(url, () => this.tls);
  }

  /** Private key in PEM. */
  get keyPem(): string {
    return this.tls.keyPem ?? '';
  }

  async close(): Promise<void> {
    this.stopping.abort();
    await this.running;
    this.clients.close();
  }

  private async renew(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const { notBeforeMs, notAfterMs } = readChain(this.tls.chainPem ?? '');
      await waitMs((notBeforeMs + notAfterMs) / 2 - Date.now(), signal);
      if (signal.aborted) return;
      try {
        this.tls = await requestCertificate(this.clients.users);
        this.renewals += 1;
        this.failure = undefined;
      } catch (reason) {
        this.failure = reason;
        await waitMs(500, signal);
      }
    }
  }
}

async function requestCertificate(users: UserClient): Promise<ClientTls> {
  const { keyPem, csr } = await createKeyAndCsr();
  const { certificateChain, trustBundle, coordinatorIds, trustDomain } =
    await users.issueUserCertificate({ csr, description: 'test' });
  return {
    keyPem,
    chainPem: certificateChain,
    bundlePem: trustBundle,
    serverIds: coordinatorIds,
    trustDomain,
  };
}

/** Waits, at least 50 ms; ends early when the signal aborts. */
function waitMs(delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, Math.max(50, delayMs));
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}
