import { X509Certificate } from 'node:crypto';
import type * as net from 'node:net';
import * as tls from 'node:tls';
import { CloudlessError } from '@cloudless/base';
import { PeerVerifier, type AllowedPeers } from '@cloudless/identity/verify';
import { readChain, toEndpoint, type ClientTls } from './client-tls.js';
import { codeOf, createProtocolError, createTrustError, toTlsError } from './tls-errors.js';

/**
 * Opens a TLS 1.3 connection for HTTP/2. The server must present a certificate of `bundlePem` with
 * one of the SPIFFE IDs `serverIds`, or of one of the kinds `serverKinds`; host names in the
 * certificate do not matter. Nothing is sent before. When the server is not trusted or not reached,
 * the socket is destroyed with a `CloudlessError`: CERTIFICATE_INVALID, CERTIFICATE_EXPIRED,
 * CERTIFICATE_NOT_YET_VALID or kind `unavailable`.
 * @param address - Base URL, such as `https://10.0.0.1:8080`.
 * @param tcp - An open connection to the server, which the TLS connection owns from now on. Default:
 *   a new one.
 * @throws CloudlessError CERTIFICATE_INVALID when a certificate or the key in `clientTls` is damaged.
 * @example
 * const createConnection = () => openTlsSocket(address, clientTls);
 * const session = http2.connect(address, { createConnection });
 */
export function openTlsSocket(
  address: string,
  clientTls: ClientTls,
  tcp?: net.Socket,
): tls.TLSSocket {
  const verifier = getVerifier(clientTls);
  let chain: readonly Uint8Array[] = [];
  /** Returns what is wrong with the chain of the server, if anything. */
  const checkChain = (): CloudlessError | undefined => {
    try {
      verifier.verify(chain, Date.now(), { ...listAllowed(clientTls), usage: 'server' });
      return undefined;
    } catch (reason) {
      return createTrustError(address, reason, describeClockDifference(chain, Date.now()));
    }
  };
  const socket = connect(
    address,
    clientTls,
    () => checkChain() ?? (socket.alpnProtocol === 'h2' ? undefined : createProtocolError(address)),
    tcp,
  );
  // Runs before Node reads the result of OpenSSL, and destroys a socket that OpenSSL refuses. The
  // chain can be read only once.
  socket.prependOnceListener('secure', () => (chain = readChain(socket)));
  improveErrors(socket, (reason) => {
    // The errors of OpenSSL have no details, so the chain is checked again.
    const isRefused = chain.length > 0 && !(reason instanceof CloudlessError);
    return (isRefused ? checkChain() : undefined) ?? toTlsError(address, reason, isRefused);
  });
  return socket;
}

function listAllowed({
  serverIds,
  serverKinds,
}: ClientTls): Pick<AllowedPeers, 'ids'> | Pick<AllowedPeers, 'kinds'> {
  return serverKinds === undefined ? { ids: serverIds } : { kinds: serverKinds };
}

/** The newest verifier. Most processes know one bundle, and reading its keys takes milliseconds. */
let newest: { readonly of: ClientTls; readonly verifier: PeerVerifier } | undefined;

function getVerifier(clientTls: ClientTls): PeerVerifier {
  const { bundlePem, trustDomain } = clientTls;
  if (newest?.of.bundlePem !== bundlePem || newest.of.trustDomain !== trustDomain)
    newest = {
      of: { bundlePem, trustDomain, serverIds: [] },
      verifier: new PeerVerifier({ bundlePem, trustDomain }),
    };
  return newest.verifier;
}

/**
 * The TLS contexts of the newest keys. Node would parse the key and the certificates again for each
 * connection, which takes 2 ms.
 */
const contexts = new WeakMap<ClientTls, tls.SecureContext>();

function getContext(clientTls: ClientTls): tls.SecureContext {
  const known = contexts.get(clientTls);
  if (known !== undefined) return known;
  const { keyPem, chainPem, bundlePem } = clientTls;
  const context = tls.createSecureContext({
    ...(keyPem === undefined ? {} : { key: keyPem }),
    ...(chainPem === undefined ? {} : { cert: chainPem }),
    ca: bundlePem,
    minVersion: 'TLSv1.3',
  });
  contexts.set(clientTls, context);
  return context;
}

/** @param checkServer - Runs when OpenSSL trusts the server; an error destroys the socket. */
function connect(
  address: string,
  clientTls: ClientTls,
  checkServer: () => Error | undefined,
  tcp: net.Socket | undefined,
): tls.TLSSocket {
  try {
    return tls.connect({
      ...toEndpoint(address),
      ...(tcp === undefined ? {} : { socket: tcp }),
      secureContext: getContext(clientTls),
      ALPNProtocols: ['h2'],
      rejectUnauthorized: true,
      checkServerIdentity: checkServer,
    });
  } catch (cause) {
    // The cause may repeat parts of the key.
    throw new CloudlessError(
      'CERTIFICATE_INVALID',
      `the private key and the certificate of this client do not fit together or are damaged (${codeOf(cause)})`,
    );
  }
}

/** Makes a socket report the result of `improve` for each error before the handshake is complete. */
function improveErrors(socket: tls.TLSSocket, improve: (reason: Error) => Error): void {
  const destroy = socket.destroy.bind(socket);
  let isComplete = false;
  socket.once('secureConnect', () => (isComplete = true));
  socket.destroy = (reason) =>
    destroy(reason === undefined || isComplete ? reason : improve(reason));
}

/** Returns a text when a certificate is not valid yet, which mostly is a wrong clock. */
function describeClockDifference(chain: readonly Uint8Array[], nowMs: number): string | undefined {
  const starts = chain.map((der) => Date.parse(new X509Certificate(der).validFrom));
  const differenceMs = Math.max(...starts) - nowMs;
  if (!(differenceMs > 0)) return undefined;
  const seconds = Math.ceil(differenceMs / 1_000);
  const [amount, unit] = seconds < 120 ? [seconds, 's'] : [Math.ceil(seconds / 60), 'min'];
  return `the clock of this machine is at least ${amount} ${unit} behind the clock of the server`;
}
