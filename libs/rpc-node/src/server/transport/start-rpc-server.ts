import * as http from 'node:http';
import * as http2 from 'node:http2';
import type * as net from 'node:net';
import { createConnectRouter, type ConnectRouter } from '@connectrpc/connect';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import { silentLog, type Log } from '@cloudless/base';
import { Health, ServerReflectionV1 } from '@cloudless/api/grpc';
import { createError } from '../admission/retryable-error.js';
import { OverloadProtection } from '../admission/overload-protection.js';
import { HealthState, registerHealthService } from '../health/health.js';
import { createGrpcHandlers } from '../messages/grpc-handlers.js';
import { Implementations } from '../messages/implementations.js';
import { inputErrorInterceptor } from '../messages/input-errors.js';
import { COMPRESSIONS, COMPRESS_MIN_BYTES } from '../messages/compressions.js';
import {
  defaultRpcLimits,
  type RpcLimits,
  type RpcLoad,
  type RpcServer,
  type RpcServerOptions,
} from '../options.js';
import { registerReflectionService } from '../reflection/reflection.js';
import { CallLifetimes } from './call-lifetimes.js';
import { ConnectionAcceptor } from './connection-acceptor.js';
import type { ServerConnection } from './connection.js';
import { createDispatch, type Dispatch } from './dispatch.js';
import type { ListenAddress } from './listen.js';
import { StreamResetLimiter } from './stream-reset-limiter.js';

/**
 * Starts a server that speaks Connect, gRPC and gRPC-Web on one port over HTTP/1.1 and HTTP/2: with
 * TLS 1.3, or in plaintext (HTTP/2 with prior knowledge).
 * @throws CloudlessError `precondition` when the host is not loopback and `tls` is absent,
 *   `invalid` when the port is out of range, `unavailable` when the port is in use, `denied` when
 *   the system refuses the port.
 * @throws Error when `classifyCall` returns undefined for an RPC.
 * @example
 * const server = await startRpcServer({ host: 'localhost', port: 0, clock, registerRoutes });
 * const client = createClient(CoordinatorService, createGrpcTransport({ baseUrl: server.url }));
 * await server.close(5_000);
 */
export async function startRpcServer(options: RpcServerOptions): Promise<RpcServer> {
  const server = new HttpRpcServer(options);
  await server.listen();
  return server;
}

class HttpRpcServer implements RpcServer {
  private readonly limits: RpcLimits;
  private readonly log: Log;
  private readonly health: HealthState;
  private readonly lifetimes: CallLifetimes;
  private readonly protection: OverloadProtection;
  private readonly http1: http.Server;
  private readonly http2: http2.Http2Server;
  private readonly connections: ConnectionAcceptor;
  private readonly http1Connections = new WeakMap<net.Socket, ServerConnection>();
  private readonly sessions = new WeakMap<http2.Http2Session, ServerConnection>();
  private readonly openResponses = new Set<http.ServerResponse>();
  private readonly dispatch: Dispatch;
  private bound: ListenAddress | undefined;
  private closing: Promise<void> | undefined;

  constructor(private readonly options: RpcServerOptions) {
    const limits = (this.limits = { ...defaultRpcLimits, ...options.limits });
    const log = (this.log = options.log ?? silentLog);
    this.connections = new ConnectionAcceptor({
      ...limits,
      clock: options.clock,
      log,
      tls: options.tls,
      protocols: ['h2', 'http/1.1'],
      serve: (connection, stream) => this.serve(connection, stream),
    });
    this.health = options.health ?? new HealthState();
    this.lifetimes = new CallLifetimes({
      clock: options.clock,
      log,
      unaryDeadlineMs: limits.unaryDeadlineMs,
    });
    this.protection = new OverloadProtection({ ...options, limits, log });
    this.dispatch = createDispatch({
      protection: this.protection,
      limits,
      handlers: this.createHandlers(),
      clock: options.clock,
      log,
      bodyTimeoutMs: limits.bodyTimeoutMs,
      maxHeaderBytes: limits.maxHeaderBytes,
      allowedOrigins: options.allowedOrigins ?? [],
      authorize: options.authorize,
      listingMethod: ServerReflectionV1.method.serverReflectionInfo,
    });
    this.http1 = http.createServer({
      maxHeaderSize: limits.maxHeaderBytes,
      keepAliveTimeout: limits.idleTimeoutMs,
    });
    this.http1.on('request', (request, response) => this.onHttp1Request(request, response));
    this.http2 = http2.createServer({
      settings: {
        maxConcurrentStreams: limits.maxConcurrentStreams,
        maxHeaderListSize: limits.maxHeaderBytes,
      },
      maxSessionMemory: limits.maxSessionMemoryMb,
      maxSessionInvalidFrames: limits.maxSessionInvalidFrames,
      maxSessionRejectedStreams: limits.maxSessionRejectedStreams,
    });
    this.http2.on('request', (request, response) => this.onHttp2Request(request, response));
  }

  async listen(): Promise<void> {
    const { host, port, portOption = '--port' } = this.options;
    this.bound = await this.connections.listen(host, port, portOption);
  }

  get address(): ListenAddress {
    if (this.bound === undefined)
      throw new Error('the server is not listening yet; call listen() first');
    return this.bound;
  }

  get url(): string {
    return this.address.url;
  }

  get openConnections(): number {
    return this.connections.size;
  }

  getLoad(): RpcLoad {
    return {
      ...this.protection.getLoad(),
      connections: this.connections.size,
      connectionsDropped: this.connections.dropped,
    };
  }

  recheckCallers(): void {
    this.lifetimes.recheckCallers();
  }

  close(graceMs = 0): Promise<void> {
    return (this.closing ??= this.shutDown(graceMs));
  }

  /** Destroys all connections at the end of the grace period. */
  private async shutDown(graceMs: number): Promise<void> {
    this.health.setAll('notServing');
    this.lifetimes.endStreams(createError('SHUTTING_DOWN', 'the server is shutting down'));
    for (const response of this.openResponses) response.shouldKeepAlive = false;
    this.connections.drain();
    if (graceMs <= 0) this.connections.destroyAll();
    const timer = this.options.clock.setTimer(Math.max(0, graceMs), () =>
      this.connections.destroyAll(),
    );
    await this.connections.waitUntilClosed();
    timer.cancel();
  }

  private createHandlers(): readonly UniversalHandler[] {
    const { registerRoutes, interceptors = [], reflectedServices = [] } = this.options;
    const { readMaxBytes, maxTimeoutMs } = this.limits;
    const allInterceptors = [this.lifetimes.interceptor, inputErrorInterceptor, ...interceptors];
    const router: ConnectRouter = createConnectRouter({
      acceptCompression: [...COMPRESSIONS],
      compressMinBytes: COMPRESS_MIN_BYTES,
      interceptors: allInterceptors,
      jsonOptions: { ignoreUnknownFields: false, alwaysEmitImplicit: true },
      readMaxBytes,
      maxTimeoutMs,
    });
    const implementations = new Implementations();
    const recording = implementations.record(router);
    registerRoutes(recording);
    for (const { method } of router.handlers) this.protection.register(method);
    const serviceHandlerCount = router.handlers.length;
    for (const { service } of router.handlers) {
      if (this.health.getStatus(service.typeName) === undefined)
        this.health.set(service.typeName, 'serving');
    }
    registerHealthService(recording, this.health);
    registerReflectionService(router, [...reflectedServices, Health]);
    for (const { method, service } of router.handlers.slice(serviceHandlerCount))
      this.protection.register(method, {
        priority: service.typeName === Health.typeName ? 'control' : 'read',
      });
    return createGrpcHandlers(router.handlers, implementations, {
      interceptors: allInterceptors,
      maxTimeoutMs,
    });
  }

  private serve(connection: ServerConnection, stream: net.Socket): void {
    if (connection.protocol === 'h2') this.serveHttp2(stream, connection);
    else this.serveHttp1(stream, connection);
    this.options.onConnection?.(connection);
  }

  private serveHttp1(socket: net.Socket, connection: ServerConnection): void {
    this.http1Connections.set(socket, connection);
    this.http1.emit('connection', socket);
    process.nextTick(() => socket.resume());
  }

  private serveHttp2(socket: net.Socket, connection: ServerConnection): void {
    const attachSession = (session: http2.Http2Session): void => {
      this.sessions.set(session, connection);
      connection.onSessionStart(() => session.close());
      session.on('ping', () => connection.onPingReceived());
      const resets = new StreamResetLimiter(this.options.clock, this.limits);
      session.on('stream', (stream) => {
        connection.onCallStart();
        stream.once('close', () => {
          connection.onCallEnd();
          if (stream.rstCode === http2.constants.NGHTTP2_NO_ERROR || resets.tryReset()) return;
          this.log.warn('http2 session destroyed: its client resets too many streams', {
            connectionId: connection.id,
          });
          connection.destroy();
        });
      });
    };
    socket.allowHalfOpen = false;
    this.http2.once('session', attachSession); // emitted while the next line runs
    this.http2.emit('connection', socket);
    this.http2.off('session', attachSession);
  }

  private onHttp1Request(request: http.IncomingMessage, response: http.ServerResponse): void {
    const connection = this.http1Connections.get(request.socket);
    if (this.closing !== undefined) response.shouldKeepAlive = false;
    this.openResponses.add(response);
    connection?.onCallStart();
    response.once('close', () => {
      this.openResponses.delete(response);
      connection?.onCallEnd();
    });
    this.dispatch(connection, request, response);
  }

  private onHttp2Request(
    request: http2.Http2ServerRequest,
    response: http2.Http2ServerResponse,
  ): void {
    const { session } = request.stream;
    this.dispatch(
      session === undefined ? undefined : this.sessions.get(session),
      request,
      response,
    );
  }
}
