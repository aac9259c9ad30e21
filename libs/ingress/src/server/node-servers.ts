import { createServer, type IncomingMessage, type Server } from 'node:http';
import {
  createServer as createHttp2,
  type Http2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from 'node:http2';
import type { Duplex } from 'node:stream';
import {
  createServer as createTls,
  type SecureContext,
  type Server as TlsServer,
  type TLSSocket,
} from 'node:tls';
import { TLS_OPTIONS } from '../tls/certificates.js';
import type { ClientRequest, ClientResponse } from './exchange.js';

/** Largest headers of any route and the first line, bytes. Routes have limits of their own. */
const MAX_HEADER_BYTES = 72 * 1024;
/** Time for a client to send the headers of a request, milliseconds. */
const HEADERS_TIMEOUT_MS = 10_000;
/** Time for a TLS handshake, milliseconds. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** Time for which a connection without a request is kept, milliseconds. */
const KEEP_ALIVE_MS = 75_000;
/** Largest number of open requests of one connection over HTTP/2. */
const MAX_STREAMS = 128;

type OnRequest = (req: ClientRequest, res: ClientResponse) => void;

/**
 * Creates a server of HTTP/1.1 that does not listen: connections are given to the server as events.
 * Malformed requests are answered by Node.
 */
export function createHttpServer(
  onRequest: OnRequest,
  onUpgrade: (req: IncomingMessage, socket: Duplex, head: Buffer) => void,
  headersTimeout = HEADERS_TIMEOUT_MS,
): Server {
  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout,
      // Uploads and streams last as long as they like; the pauses in a body are bounded elsewhere.
      requestTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      connectionsCheckingInterval: Math.min(headersTimeout, 1_000),
    },
    onRequest,
  );
  server.on('upgrade', onUpgrade);
  // Node begins to check the timeouts of connections with this event.
  server.emit('listening');
  return server;
}

/** Connections of clients over HTTP/2. */
export class Http2Clients {
  private readonly server: Http2Server;
  /** Open connections with their numbers of open requests. */
  private readonly sessions = new Map<ServerHttp2Session, number>();
  private isDraining = false;

  constructor(onRequest: OnRequest) {
    this.server = createHttp2(
      { settings: { maxConcurrentStreams: MAX_STREAMS, maxHeaderListSize: MAX_HEADER_BYTES } },
      (req: Http2ServerRequest, res: Http2ServerResponse) => onRequest(req, res),
    );
    this.server.on('session', (session) => this.watch(session));
    // An error of a session ends its streams, which report the error.
    this.server.on('sessionError', () => undefined);
    this.server.setTimeout(0);
  }

  /** Serves a connection whose TLS handshake is complete. */
  serve(socket: TLSSocket): void {
    this.server.emit('connection', socket);
  }

  /** Ends unused connections, and the others with their last request. */
  drain(): void {
    this.isDraining = true;
    for (const session of this.sessions.keys()) session.close();
  }

  private watch(session: ServerHttp2Session): void {
    this.sessions.set(session, 0);
    const count = (change: number): void => {
      const before = this.sessions.get(session);
      if (before !== undefined) this.sessions.set(session, before + change);
    };
    session.on('stream', (stream) => {
      count(1);
      stream.once('close', () => count(-1));
    });
    session.setTimeout(KEEP_ALIVE_MS, () => {
      if (this.sessions.get(session) === 0) session.close();
    });
    session.once('close', () => this.sessions.delete(session));
    if (this.isDraining) session.close();
  }
}

/**
 * Creates a TLS server that does not listen: connections are given to the server as events. A name
 * without a certificate ends the handshake.
 * @param find - Returns the certificate for a name.
 * @param onSecure - Receives each connection whose TLS handshake is complete.
 */
export function createTlsServer(
  find: (name: string) => SecureContext | undefined,
  onSecure: (socket: TLSSocket) => void,
): TlsServer {
  const server = createTls({
    ...TLS_OPTIONS,
    ALPNProtocols: ['h2', 'http/1.1'],
    handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
    SNICallback: (name, done) => {
      const context = find(name);
      if (context === undefined) done(new Error('no route has a certificate for this name'));
      else done(null, context);
    },
  });
  server.on('secureConnection', onSecure);
  server.on('tlsClientError', (_reason, socket) => socket.destroy());
  return server;
}
