import * as http2 from 'node:http2';
import * as net from 'node:net';
import type { TLSSocket } from 'node:tls';
import { CloudlessError } from '@cloudless/base';
import { toEndpoint, type ClientTls } from './client-tls.js';
import { detectTls } from './detect-tls.js';
import { openTlsSocket } from './open-tls-socket.js';
import { createUnreachableError } from './tls-errors.js';

/**
 * Starts to open an HTTP/2 session, on which requests wait until the session is open. The session
 * emits `error` when the server is not reached or not trusted; see {@link openTlsSocket}.
 * @param address - Base URL. With `http://` the session is in plaintext, whatever `clientTls` is.
 * @throws kind `precondition` for an address with `https://` without `clientTls`.
 */
export function openHttp2Session(
  address: string,
  clientTls: ClientTls | undefined,
): http2.ClientHttp2Session {
  if (!isHttps(address)) return http2.connect(address);
  return openOverTls(address, requireTls(address, clientTls));
}

function openOverTls(
  address: string,
  clientTls: ClientTls,
  tcp?: net.Socket,
): http2.ClientHttp2Session {
  const createConnection = (): TLSSocket => openTlsSocket(address, clientTls, tcp);
  return http2.connect(address, { createConnection });
}

function isHttps(address: string): boolean {
  return address.startsWith('https:');
}

function requireTls(address: string, clientTls: ClientTls | undefined): ClientTls {
  if (clientTls !== undefined) return clientTls;
  throw new CloudlessError(
    'precondition',
    `${address} needs TLS, but this client has no certificate authority to trust; log in or join first`,
  );
}

/**
 * Opens an HTTP/2 session, which the caller must close. The TCP connection is opened first: while a
 * server is away, attempts over TLS cost half of those with a TLS connection and a session, and an
 * aborted attempt leaves nothing behind. (The end of a session that is not open yet leaves its socket
 * connecting, in Node.js 20.20.)
 * @param signal - Aborts the attempt; has no effect once the session is open.
 * @param onReached - Called when the TCP connection is open.
 * @throws As {@link openHttp2Session}, and `CloudlessError` with the errors of the session; kind
 *   `unavailable` when `signal` is aborted first.
 */
export async function connectHttp2Session(
  address: string,
  clientTls: ClientTls | undefined,
  signal: AbortSignal,
  onReached?: () => void,
): Promise<http2.ClientHttp2Session> {
  const tls = isHttps(address) ? requireTls(address, clientTls) : undefined;
  const tcp = await waitForOpen(address, () => net.connect(toEndpoint(address)), 'connect', signal);
  onReached?.();
  const open = (): http2.ClientHttp2Session =>
    tls === undefined
      ? http2.connect(address, { createConnection: () => tcp })
      : openOverTls(address, tls, tcp);
  try {
    return await waitForOpen(address, open, 'connect', signal);
  } catch (reason) {
    tcp.destroy(); // the attempt was aborted before the session owned the connection
    throw reason;
  }
}

/**
 * Waits until the server has sent its SETTINGS, with which each HTTP/2 server begins (RFC 9113,
 * section 3.4). In plaintext this is the first sign that the server speaks HTTP/2: a TCP connection is
 * open before that, and a server with TLS closes the connection without an answer.
 * @param session - A session in plaintext, in the turn in which {@link connectHttp2Session} returned
 *   the session. Destroyed when this function throws.
 * @param signal - Aborts the wait.
 * @throws kind `precondition` when the server speaks TLS; `unavailable` when the connection closes or
 *   `signal` is aborted first.
 */
export async function waitForSettings(
  address: string,
  session: http2.ClientHttp2Session,
  signal: AbortSignal,
): Promise<void> {
  const outcome = await new Promise<'open' | 'closed' | 'aborted'>((resolve) => {
    const abort = (): void => resolve('aborted');
    signal.addEventListener('abort', abort, { once: true });
    session.once('close', () => resolve('closed'));
    session.once('remoteSettings', () => {
      signal.removeEventListener('abort', abort);
      resolve('open');
    });
    if (signal.aborted) abort();
  });
  if (outcome === 'open') return;
  session.destroy();
  if (outcome === 'closed' && (await detectTls(address, signal)))
    throw new CloudlessError(
      'precondition',
      `the server at ${address} speaks TLS; use ${address.replace(/^http:/, 'https:')}`,
    );
  throw createUnreachableError(address, signal.reason);
}

/**
 * Ends a session and all its calls in the next turn of the event loop. Use this function wherever an
 * error of a call may lead to the end of the session. A GOAWAY refuses streams, and Node.js (seen with
 * 20.20 and 25.9) never returns, and keeps its thread busy, when the reaction to one refused stream
 * ends the session or other streams of the session in the same turn.
 * @param reason - Error of the calls. Without a reason, a call that still waits for its response does
 *   not end: the caller must end such calls after the event `close`.
 */
export function destroyInNextTurn(session: http2.ClientHttp2Session, reason?: Error): void {
  setImmediate(() => session.destroy(reason));
}

/**
 * Opens a TLS connection for HTTP/2, which the caller must close; see {@link openTlsSocket}.
 * @param signal - Aborts the attempt; has no effect once the connection is open.
 * @throws CloudlessError as {@link openTlsSocket}; kind `unavailable` when `signal` is aborted first.
 */
export function connectTls(
  address: string,
  clientTls: ClientTls,
  signal: AbortSignal,
): Promise<TLSSocket> {
  return waitForOpen(address, () => openTlsSocket(address, clientTls), 'secureConnect', signal);
}

/** What a session and a socket have in common. */
interface Connection {
  once(event: string, listener: () => void): unknown;
  on(event: 'error', listener: (reason: unknown) => void): unknown;
  destroy(): unknown;
}

async function waitForOpen<Opened extends Connection>(
  address: string,
  open: () => Opened,
  openEvent: string,
  signal: AbortSignal,
): Promise<Opened> {
  if (signal.aborted) throw createUnreachableError(address, signal.reason);
  const connection = open();
  return new Promise((resolve, reject) => {
    const fail = (cause: unknown): void =>
      reject(cause instanceof CloudlessError ? cause : createUnreachableError(address, cause));
    const abort = (): void => {
      connection.destroy();
      fail(signal.reason);
    };
    signal.addEventListener('abort', abort, { once: true });
    // Stays after the connection is open, when `fail` has no effect: an unhandled error event would
    // end the process, and calls and pings fail with the same error.
    connection.on('error', fail);
    connection.once('close', () => {
      signal.removeEventListener('abort', abort);
      fail(undefined);
    });
    connection.once(openEvent, () => {
      signal.removeEventListener('abort', abort);
      resolve(connection);
    });
  });
}
