import { createHash, X509Certificate } from 'node:crypto';
import * as tls from 'node:tls';
import { CloudlessError } from '@cloudless/base';
import { formatSpiffeId, parseSpiffeId } from '@cloudless/identity';
import { PeerVerifier } from '@cloudless/identity/verify';
import { readChain, toEndpoint } from './client-tls.js';
import { createTrustError, createUnreachableError, toTlsError } from './tls-errors.js';

/** What a client learns of a cluster whose root certificate it knows by its SHA-256. */
export interface ServerRoot {
  /** The root certificate in PEM: the first trust bundle of the client. */
  readonly bundlePem: string;
  /** SPIFFE ID of the server. */
  readonly serverId: string;
  readonly trustDomain: string;
}

/**
 * Reads the root certificate of a coordinator from its TLS handshake, and sends nothing but the
 * handshake. The server must present a root certificate with one of the given SHA-256, and prove by
 * the handshake that it holds a server certificate of this root for a controller.
 * @param address - Base URL, such as `https://10.0.0.1:8080`.
 * @param caSha256s - SHA-256 of each accepted root certificate in DER, as hex digits; part of a
 *   token.
 * @param caFile - File that `caSha256s` are from, for messages. Default: they are part of a token.
 * @throws CloudlessError CERTIFICATE_INVALID when the server has another root, or CERTIFICATE_EXPIRED
 *   or CERTIFICATE_NOT_YET_VALID; kind `unavailable` when the server is not reached or does not speak
 *   TLS, or `signal` is aborted first.
 */
export async function fetchServerRoot(
  address: string,
  caSha256s: readonly string[],
  signal: AbortSignal,
  caFile?: string,
): Promise<ServerRoot> {
  const chain = await fetchChain(address, signal);
  const accepted = new Set(caSha256s.map((digest) => digest.toLowerCase()));
  const rootDer = chain.find((der) => accepted.has(sha256Hex(der)));
  if (rootDer === undefined) {
    throw createTrustError(
      address,
      new CloudlessError(
        'CERTIFICATE_INVALID',
        caFile === undefined
          ? 'its certificate is not of the certificate authority that the token names'
          : `its certificate is of no certificate authority in the CA file ${caFile}`,
      ),
      caFile === undefined
        ? 'check the address, and that the token was created by this cluster'
        : 'check the address, and that the file contains the root of this cluster',
    );
  }
  try {
    const bundlePem = new X509Certificate(rootDer).toString();
    const trustDomain = readTrustDomain(chain[0]);
    const verifier = new PeerVerifier({ trustDomain, bundlePem });
    const { id } = verifier.verify(chain, Date.now(), { kinds: ['controller'], usage: 'server' });
    return { bundlePem, serverId: formatSpiffeId(id), trustDomain };
  } catch (reason) {
    throw createTrustError(address, reason);
  }
}

/** Makes a TLS handshake without trust, and returns what the server presented. */
async function fetchChain(address: string, signal: AbortSignal): Promise<readonly Uint8Array[]> {
  if (signal.aborted) throw createUnreachableError(address, signal.reason);
  const socket = tls.connect({
    ...toEndpoint(address),
    ca: NO_AUTHORITIES,
    minVersion: 'TLSv1.3',
    ALPNProtocols: ['h2'],
    // The caller verifies the chain. Nothing is sent on this connection.
    rejectUnauthorized: false,
  });
  const abort = (): void => void socket.destroy(createUnreachableError(address, signal.reason));
  signal.addEventListener('abort', abort, { once: true });
  try {
    return await new Promise((resolve, reject) => {
      socket.once('error', (reason) => reject(toTlsError(address, reason, false)));
      socket.once('close', () => reject(createUnreachableError(address, undefined)));
      socket.once('secureConnect', () => resolve(readChain(socket)));
    });
  } finally {
    signal.removeEventListener('abort', abort);
    socket.on('error', () => undefined);
    socket.destroy();
  }
}

const NO_AUTHORITIES: string[] = [];

/** Returns the trust domain of a certificate, which is not verified yet. */
function readTrustDomain(der: Uint8Array | undefined): string {
  const names = der === undefined ? '' : (new X509Certificate(der).subjectAltName ?? '');
  const [, uri = ''] = /(?:^|, )URI:(spiffe:[^,"]*)/.exec(names) ?? [];
  return parseSpiffeId(uri).trustDomain;
}

function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
