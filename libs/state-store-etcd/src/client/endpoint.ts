import { createClient, type Client } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import type { Clock } from '@cloudless/base';
import { Auth, KV, Lease, Maintenance, Watch } from '../gen/etcd/etcdserverpb/rpc_pb.js';
import { explainConnectFailure } from './etcd-failure.js';

/** Certificates and key in PEM. */
export interface EtcdTls {
  /** Certificates of the CAs that sign the certificates of etcd. Default: those of Node.js. */
  readonly ca?: string;
  /** Client certificate with its chain. */
  readonly certificate?: string;
  readonly key?: string;
}

/** Largest accepted response: a page of large values, or the first response of a watch. */
const READ_MAX_BYTES = 1024 * 1024 * 1024;
/**
 * HTTP/2 PINGs find a dead connection of a watch without changes. etcd closes connections with more
 * frequent PINGs (`--grpc-keepalive-min-time`, 5 s).
 */
const PINGS = { pingIntervalMs: 6_000, pingTimeoutMs: 2_000 };
/** Megabytes of data that one HTTP/2 connection may hold. */
const SESSION_MEMORY_MB = 256;
/** Bytes of one stream that may be on their way; the default of 64 KiB makes large pages slow. */
const STREAM_WINDOW_BYTES = 1024 * 1024;

/** Time that a new connection may take, milliseconds. */
export const CONNECT_MS = 1_500;

function createLateError(timeoutMs: number): Error {
  return new Error(`no connection within ${timeoutMs} ms`);
}

/** One member of etcd: a connection for calls, and another one for watches. */
export class Endpoint {
  readonly kv: Client<typeof KV>;
  readonly lease: Client<typeof Lease>;
  readonly maintenance: Client<typeof Maintenance>;
  readonly auth: Client<typeof Auth>;
  readonly watch: Client<typeof Watch>;
  /** Asks over the connection of the watches. */
  private readonly streamsMaintenance: Client<typeof Maintenance>;
  /** Monotonic time until which other endpoints are preferred. */
  suspectUntil = 0;
  private readonly calls: Http2SessionManager;
  private readonly streams: Http2SessionManager;
  /** The attempts to connect that are being made. */
  private readonly attempts: Partial<Record<'calls' | 'streams', Promise<void> | undefined>> = {};

  constructor(
    readonly url: string,
    tls: EtcdTls | undefined,
    private readonly clock: Clock,
  ) {
    const options = {
      maxSessionMemory: SESSION_MEMORY_MB,
      settings: { initialWindowSize: STREAM_WINDOW_BYTES, enablePush: false },
      ...(tls === undefined ? {} : { ca: tls.ca, cert: tls.certificate, key: tls.key }),
    };
    this.calls = new Http2SessionManager(url, PINGS, options);
    this.streams = new Http2SessionManager(url, PINGS, options);
    const toTransport = (sessionManager: Http2SessionManager) =>
      createGrpcTransport({ baseUrl: url, readMaxBytes: READ_MAX_BYTES, sessionManager });
    const transport = toTransport(this.calls);
    this.kv = createClient(KV, transport);
    this.lease = createClient(Lease, transport);
    this.maintenance = createClient(Maintenance, transport);
    this.auth = createClient(Auth, transport);
    const streamsTransport = toTransport(this.streams);
    this.watch = createClient(Watch, streamsTransport);
    this.streamsMaintenance = createClient(Maintenance, streamsTransport);
  }

  /**
   * Opens the connection for calls, or for watches, unless it is open. Calls share the attempt.
   * @param timeoutMs - Time for which this call waits; the attempt goes on for others.
   * @throws kind `unavailable`, or `precondition` when the settings do not fit: nothing was sent.
   */
  connect(purpose: 'calls' | 'streams', timeoutMs: number): Promise<void> {
    if (this[purpose].state() === 'open') return Promise.resolve();
    const attempt = (this.attempts[purpose] ??= this.open(purpose).finally(() => {
      this.attempts[purpose] = undefined;
    }));
    return new Promise((resolve, reject) => {
      const timer = this.clock.setTimer(timeoutMs, () =>
        reject(explainConnectFailure(this.url, createLateError(timeoutMs))),
      );
      attempt.then(resolve, reject).finally(() => timer.cancel());
    });
  }

  private async open(purpose: 'calls' | 'streams'): Promise<void> {
    const manager = this[purpose];
    let isLate = false;
    const timer = this.clock.setTimer(CONNECT_MS, () => {
      isLate = true;
      manager.abort(createLateError(CONNECT_MS));
    });
    try {
      const reached = await manager.connect();
      if (reached === 'error' || isLate)
        throw explainConnectFailure(this.url, manager.error() ?? new Error('no connection'));
    } finally {
      timer.cancel();
    }
  }

  /**
   * Asks the member for its status over the connection of the watches: a slow or broken connection
   * for calls says nothing about them. Does nothing while there are no watches.
   * @throws when there is no answer within `timeoutMs`, and what the member answers instead.
   */
  async checkStreams(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.streams.state() !== 'open') return;
    await this.streamsMaintenance.status({}, { timeoutMs, signal });
  }

  /** Ends all watches of this endpoint, which then continue at another one. */
  resetStreams(): void {
    // Not in the turn of the error that leads here: Node.js hangs when a session with open streams
    // is destroyed while Node.js handles a GOAWAY that has refused a stream.
    setImmediate(() => this.streams.abort(new Error('the endpoint does not answer')));
  }

  close(): void {
    this.calls.abort();
    this.streams.abort();
  }
}
