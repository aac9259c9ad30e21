import { constants, type X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import * as tls from 'node:tls';
import {
  CloudlessError,
  definedFields,
  errorCodeOf,
  errorMessageOf,
  type Log,
} from '@cloudless/base';
import { shouldLogOccurrence } from './log-sampling.js';

/** Source of the key and the certificate of a server, which may change while the server runs. */
export interface ServerTls {
  /**
   * Returns the current private key, and the certificate of the server followed by the certificates
   * of its issuers, all in PEM.
   */
  getContext(): { readonly keyPem: string; readonly chainPem: string };
  /**
   * Runs `listener` after each change. New connections use the new context; open connections
   * continue.
   * @returns A function that ends the subscription.
   */
  onContextChange(listener: () => void): () => void;
}

/** The certificates that a client presented. The server has not verified them. */
export interface PeerCertificates {
  /** In DER: the certificate of the client, then the issuer of each certificate before. */
  readonly chainDer: readonly Uint8Array[];
}

/**
 * Most certificates of a client: its own, the issuing certificate and the root, and one in reserve.
 */
const MAX_PEER_CERTIFICATES = 4;
/** Most bytes of all certificates of a client in DER. A certificate of a cluster takes 600 bytes. */
const MAX_PEER_CERTIFICATE_BYTES = 16 * 1024;
/**
 * Time after which Node ends a handshake, on the system clock. A second safeguard only: the
 * connection ends a handshake earlier, on the clock of the server.
 */
const NODE_HANDSHAKE_TIMEOUT_MS = 120_000;

/**
 * Makes the TLS handshake of accepted sockets: TLS 1.3 only, and no resumption of sessions, so that
 * each connection presents its certificate. Asks for a client certificate, but neither demands nor
 * verifies a certificate: the server decides for each call.
 */
export class TlsAcceptor {
  private readonly server: tls.Server;
  private readonly handshakes = new Map<string, { socket: Socket; onSecure: OnSecure }>();
  private readonly unsubscribe: () => void;
  private failures = 0;

  /**
   * @param protocols - ALPN names, the preferred first.
   * @throws CloudlessError `precondition` when the key and the certificate of the server do not fit
   *   together or are not valid PEM.
   */
  constructor(
    private readonly settings: ServerTls,
    protocols: readonly string[],
    private readonly log: Log,
  ) {
    this.server = createTlsServer({
      ...toContextOptions(settings),
      ALPNProtocols: [...protocols],
      requestCert: true,
      rejectUnauthorized: false,
      handshakeTimeout: NODE_HANDSHAKE_TIMEOUT_MS,
    });
    this.server.on('secureConnection', (secure) => this.onSecureConnection(secure));
    this.server.on('tlsClientError', (reason) => {
      // a client that closes early, and a connection that the server itself closes
      if (errorCodeOf(reason) === 'ECONNRESET') return;
      this.recordFailure(errorMessageOf(reason));
    });
    this.unsubscribe = settings.onContextChange(() => this.reload());
  }

  /**
   * Starts the handshake on `socket`, whose first bytes may have been put back. Destroys the socket
   * when the handshake fails or the certificates of the client exceed a limit.
   * @param onSecure - Runs once the handshake is complete. `peer` is undefined without a client
   *   certificate.
   */
  accept(socket: Socket, onSecure: OnSecure): void {
    const key = toSocketKey(socket);
    const handshake = { socket, onSecure };
    this.handshakes.set(key, handshake);
    socket.once('close', () => {
      if (this.handshakes.get(key) === handshake) this.handshakes.delete(key);
    });
    // Closes the socket when the client leaves before the handshake is complete. A half-open socket
    // would keep its place among the handshakes until the timeout.
    socket.allowHalfOpen = false;
    this.server.emit('connection', socket);
  }

  /** Ends the subscription of changes of the context. */
  close(): void {
    this.unsubscribe();
  }

  private onSecureConnection(secure: tls.TLSSocket): void {
    const key = toSocketKey(secure);
    const handshake = this.handshakes.get(key);
    this.handshakes.delete(key);
    // the client has gone when there is no address any more
    if (handshake === undefined) return void secure.destroy();
    const peer = readPeerCertificates(secure);
    if (peer === 'tooLarge') {
      this.recordFailure(
        `the client certificate and its issuers are more than ${MAX_PEER_CERTIFICATES} certificates or more than ${MAX_PEER_CERTIFICATE_BYTES} bytes`,
        handshake.socket.remoteAddress,
      );
      return void secure.destroy();
    }
    handshake.onSecure(secure, peer);
  }

  /** Keeps the old context when the new context is not valid, for example without a key. */
  private reload(): void {
    try {
      this.server.setSecureContext(toContextOptions(this.settings));
    } catch (reason) {
      this.log.error('the new server certificate is not valid; the old certificate stays in use', {
        error: errorMessageOf(reason),
      });
    }
  }

  /** @param address - Absent when the connection is closed already. */
  private recordFailure(reason: string, address?: string): void {
    this.failures += 1;
    if (!shouldLogOccurrence(this.failures)) return;
    this.log.warn('TLS handshakes failed', {
      ...definedFields({ address }),
      error: reason,
      failed: this.failures,
    });
  }
}

type OnSecure = (secure: tls.TLSSocket, peer: PeerCertificates | undefined) => void;

/**
 * An empty list of authorities: OpenSSL would otherwise load the certificates of all public
 * authorities, against which nothing is verified here.
 */
const NO_AUTHORITIES: string[] = [];

function toContextOptions(settings: ServerTls): tls.SecureContextOptions {
  const { keyPem, chainPem } = settings.getContext();
  return {
    key: keyPem,
    cert: chainPem,
    ca: NO_AUTHORITIES,
    minVersion: 'TLSv1.3',
    maxVersion: 'TLSv1.3',
    secureOptions: constants.SSL_OP_NO_TICKET,
  };
}

function createTlsServer(options: tls.TlsOptions): tls.Server {
  try {
    return tls.createServer(options);
  } catch (cause) {
    throw new CloudlessError(
      'precondition',
      'the private key and the certificate of the server are not valid or do not fit together',
      { cause },
    );
  }
}

/** Both ends of a connection, which are unique among the open connections of this machine. */
function toSocketKey({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return [remoteAddress, remotePort, localAddress, localPort].join(' ');
}

function readPeerCertificates(secure: tls.TLSSocket): PeerCertificates | 'tooLarge' | undefined {
  const chainDer: Uint8Array[] = [];
  let bytes = 0;
  let certificate: X509Certificate | undefined = secure.getPeerX509Certificate();
  while (certificate !== undefined) {
    bytes += certificate.raw.length;
    if (chainDer.length >= MAX_PEER_CERTIFICATES || bytes > MAX_PEER_CERTIFICATE_BYTES)
      return 'tooLarge';
    chainDer.push(certificate.raw);
    certificate = certificate.issuerCertificate;
  }
  return chainDer.length === 0 ? undefined : { chainDer };
}
