import type { IncomingMessage, Server as HttpServer } from 'node:http';
import type { Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Server as TlsServer, TLSSocket } from 'node:tls';
import {
  definedFields,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type SampledTracer,
} from '@cloudless/base';
import type { IngressBackends } from '../backend/backends.js';
import { Http2Sessions } from '../backend/http2-sessions.js';
import { KeptConnections } from '../backend/kept-connections.js';
import type { IngressRoute } from '../model.js';
import { RouteTable } from '../routing/route-table.js';
import { Certificates, TLS_OPTIONS, type CertificatesOptions } from '../tls/certificates.js';
import { ClientConnections } from './client-connections.js';
import type { ClientRequest, ClientResponse, ExchangeContext } from './exchange.js';
import { createIngressMetrics } from './ingress-metrics.js';
import { createHttpServer, createTlsServer, Http2Clients } from './node-servers.js';
import { RequestHandler, type AccessLine, type EndpointResponse } from './request-handler.js';
import { restartWithoutUpgrade, toUpgradeResponse } from './upgrades.js';

/** Connections of clients at one listener. Further connections are closed at once. */
const MAX_CONNECTIONS = 10_000;
/** Largest number of problems in the status. */
const MAX_PROBLEMS = 100;

/** Arguments of {@link createIngress}. */
export interface IngressOptions {
  readonly backends: IngressBackends;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter: Meter;
  /** Share of the successful requests in the access log, 0 to 1. Default: 0.01. */
  readonly accessSample?: number;
  /** Receives the access log. Default: lines of the log. */
  readonly onAccess?: (line: AccessLine) => void;
  /** Records requests. Default: nothing. */
  readonly tracer?: SampledTracer;
  /**
   * Receives each finished request that was given to an endpoint, except those that the client ended
   * and connections that were upgraded.
   */
  readonly onResponse?: (response: EndpointResponse) => void;
  /** Time for a client to send the headers of a request, milliseconds. Default: 10000. */
  readonly headersTimeoutMs?: number;
  /** Reads the files of certificates. Default: the file system. */
  readonly readText?: CertificatesOptions['readText'];
  /** Returns the certificates in secrets. Default: none is known. */
  readonly readSecret?: CertificatesOptions['readSecret'];
}

/** State of an ingress at the moment of the read. */
export interface IngressStatus {
  readonly routes: number;
  /** Connections of clients. */
  readonly openConnections: number;
  /** Failures with their causes, as texts for people. At most 100. */
  readonly problems: readonly string[];
}

/** HTTP ingress of a node. */
export interface Ingress {
  /**
   * Replaces the routes. Open requests finish with the route that they have. Resolves when the
   * certificates of the routes are read.
   */
  setRoutes(routes: Iterable<IngressRoute>): Promise<void>;
  /**
   * Serves clients without TLS at a listening server with `allowHalfOpen`. The connections of the
   * server may begin paused. Call this method once for each address; a server that the caller closes
   * keeps its connections.
   */
  serveHttp(server: Server): void;
  /**
   * Serves clients with TLS, over HTTP/1.1 and HTTP/2, at a listening server. Routes with
   * `redirectToHttps` redirect to its port.
   */
  serveHttps(server: Server): void;
  /** Resolves when no file of a certificate is being read. */
  certificatesRead(): Promise<void>;
  /** Serves what `readSecret` returns now. Connections of clients stay open. */
  certificatesChanged(): void;
  status(): IngressStatus;
  /**
   * Accepts no more connections, ends unused ones and lets requests finish. Resolves when all
   * connections have ended or `withinMs` milliseconds have passed.
   */
  drain(withinMs: number): Promise<void>;
  /** Ends all connections. */
  close(): void;
}

/** Creates an ingress without routes and listeners. */
export function createIngress(options: IngressOptions): Ingress {
  return new NodeIngress(options);
}

class NodeIngress implements Ingress {
  private table = new RouteTable([]);
  private routeCount = 0;
  private readonly certificates: Certificates;
  private readonly context: ExchangeContext;
  private readonly handler: RequestHandler;
  private readonly connections = {
    http: new ClientConnections(MAX_CONNECTIONS),
    https: new ClientConnections(MAX_CONNECTIONS),
  };
  private readonly http1: HttpServer;
  private readonly http2: Http2Clients;
  private readonly tls: TlsServer;
  private readonly listeners = new Set<Server>();
  private readonly unpublish: () => void;
  private httpsPort: number | undefined;

  constructor(private readonly options: IngressOptions) {
    const { clock, backends, log, readText, readSecret, meter } = options;
    const kept = new KeptConnections(clock);
    this.context = { clock, backends, kept, sessions: new Http2Sessions(clock) };
    this.certificates = new Certificates(
      { clock, log, ...definedFields({ readText, readSecret }) },
      () => this.serveNameless(),
    );
    const metrics = createIngressMetrics(meter);
    this.handler = new RequestHandler({
      ...{ ...options, metrics, context: this.context },
      table: () => this.table,
      httpsPort: () => this.httpsPort,
      covers: (name, host) => this.certificates.covers(name, host),
    });
    this.unpublish = meter.onExpose(() => {
      for (const [listener, { size }] of Object.entries(this.connections))
        metrics.connections.set(size, { listener });
    });
    const onRequest = (req: ClientRequest, res: ClientResponse): void =>
      this.handler.handle(req, res);
    this.http1 = createHttpServer(
      onRequest,
      (req, socket, head) => this.upgrade(req, socket, head),
      options.headersTimeoutMs,
    );
    this.http2 = new Http2Clients(onRequest);
    this.tls = createTlsServer(
      (name) => this.certificates.find(name),
      (socket) => this.beginTls(socket),
    );
  }

  setRoutes(routes: Iterable<IngressRoute>): Promise<void> {
    const all = [...routes];
    this.table = new RouteTable(all);
    this.routeCount = all.length;
    this.handler.forgetRoutes(all);
    return this.certificates.setRoutes(all);
  }

  serveHttp(server: Server): void {
    this.serve(server, this.connections.http, (socket) => {
      this.http1.emit('connection', socket);
      socket.resume();
    });
  }

  serveHttps(server: Server): void {
    const address = server.address();
    if (typeof address === 'object' && address !== null) this.httpsPort = address.port;
    this.serve(server, this.connections.https, (socket) => {
      this.tls.emit('connection', socket);
      socket.resume();
    });
  }

  certificatesRead(): Promise<void> {
    return this.certificates.settled;
  }

  certificatesChanged(): void {
    this.certificates.readSecrets();
  }

  status(): IngressStatus {
    return {
      routes: this.routeCount,
      openConnections: this.connections.http.size + this.connections.https.size,
      problems: this.certificates.problems.slice(0, MAX_PROBLEMS),
    };
  }

  async drain(withinMs: number): Promise<void> {
    for (const server of this.listeners) server.close();
    this.handler.drain(() => setImmediate(() => this.http1.closeIdleConnections()));
    this.context.kept.drain();
    this.context.sessions.drain();
    this.http1.closeIdleConnections();
    this.http2.drain();
    const { http, https } = this.connections;
    await new Promise<void>((resolve) => {
      const timer = this.options.clock.setTimer(withinMs, resolve);
      void Promise.all([http.waitUntilEmpty(), https.waitUntilEmpty()]).then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  close(): void {
    for (const server of this.listeners) server.close();
    this.unpublish();
    this.certificates.close();
    this.connections.http.destroyAll();
    this.connections.https.destroyAll();
    this.http1.close();
    this.context.kept.drain();
    this.context.kept.destroy();
    this.context.sessions.close();
  }

  private serve(
    server: Server,
    connections: ClientConnections,
    begin: (socket: Socket) => void,
  ): void {
    this.listeners.add(server);
    server.once('close', () => this.listeners.delete(server));
    server.on('error', () => undefined);
    server.on('connection', (socket: Socket) => {
      if (!connections.add(socket)) return;
      // The connection of a client that went away without closing it would stay for ever.
      socket.setKeepAlive(true, 60_000);
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
      begin(socket);
    });
  }

  private beginTls(socket: TLSSocket): void {
    socket.on('error', () => undefined);
    if (socket.alpnProtocol === 'h2') this.http2.serve(socket);
    else this.http1.emit('connection', socket);
  }

  private upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => undefined);
    const protocol = (req.headers.upgrade ?? '').trim();
    if (/^(?:h2c|http\/.*|tls\/.*)$/i.test(protocol) || !/^[\w.\-/]{1,64}$/.test(protocol))
      return restartWithoutUpgrade(this.http1, req, socket, head);
    const res = toUpgradeResponse(req, socket);
    this.handler.handle(req, res, { protocol, socket, head });
  }

  /** Gives clients that name no host the certificate of the routes for every host, if any. */
  private serveNameless(): void {
    this.tls.setSecureContext({ ...TLS_OPTIONS, ...this.certificates.findPem(undefined) });
  }
}
