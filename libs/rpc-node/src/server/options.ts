import type { DescService } from '@bufbuild/protobuf';
import type { ConnectRouter, Interceptor } from '@connectrpc/connect';
import type { Clock, Log } from '@cloudless/base';
import type { AuthorizeCall } from './transport/call-authorization.js';
import type { ClientConnection } from './transport/connection.js';
import type { ServerTls } from './transport/tls-acceptor.js';
import type { PriorityLoad } from './admission/call-admission.js';
import type { HealthState } from './health/health.js';
import type { ClassifyCall, CallPriority, PriorityLimits } from './admission/call-priority.js';
import type { OverloadLevel } from './admission/overload-detector.js';

/** Limits of a server. Sizes in bytes, times in milliseconds. */
export interface RpcLimits {
  /**
   * Open sockets of the server. Beyond the limit, a new connection replaces the oldest connection
   * whose TLS handshake is not complete, or else the oldest connection without calls, or else with
   * TLS the oldest connection whose client has no identity. When all connections have calls, the new
   * connection is closed.
   */
  readonly maxConnections: number;
  /**
   * TLS handshakes that have started and are not complete. Beyond the limit, a new handshake waits
   * until another completes, or replaces the oldest once the oldest is 5 s old, or 2 s when no other
   * handshake completes.
   */
  readonly maxHandshakes: number;
  /** Open streams of one HTTP/2 session. */
  readonly maxConcurrentStreams: number;
  /** Bytes of the head of one request. */
  readonly maxHeaderBytes: number;
  /** Memory of one HTTP/2 session as Node counts it, in MB (10^6 bytes). */
  readonly maxSessionMemoryMb: number;
  /** Invalid frames before the server destroys an HTTP/2 session. */
  readonly maxSessionInvalidFrames: number;
  /** Refused streams before the server destroys an HTTP/2 session. */
  readonly maxSessionRejectedStreams: number;
  /**
   * Streams that a client may reset at once. Further resets beyond `resetsPerSecond` make the
   * server destroy the HTTP/2 session (CVE-2023-44487).
   */
  readonly resetBurst: number;
  /** Resets that are allowed again in each second. */
  readonly resetsPerSecond: number;
  /**
   * Bytes of one request message, before and after decompression. A service may set its own limit
   * in `router.service`.
   */
  readonly readMaxBytes: number;
  /**
   * Fields, list elements and map entries of one request message; 32 characters of text count as
   * one. Limits the time and memory of parsing.
   */
  readonly maxMessageParts: number;
  /** Running and waiting calls of each priority. */
  readonly priorities: Readonly<Record<CallPriority, PriorityLimits>>;
  /**
   * Running calls of one principal in each priority; further calls wait. Control calls are exempt.
   */
  readonly runningPerPrincipal: number;
  /**
   * Calls without control priority that start in one iteration of the event loop; 1 under overload.
   * In each iteration at least one call of each priority may start.
   */
  readonly callsPerIteration: number;
  /** Snapshot messages that all streams together send in one iteration of the event loop. */
  readonly snapshotMessagesPerIteration: number;
  /**
   * Large request messages, of 8 KiB or more each, that are parsed and handled in one iteration of
   * the event loop: of all streams together that read in turns.
   */
  readonly largeMessagesPerIteration: number;
  /**
   * Open streams and long-running calls of all clients together. Calls of control priority are
   * exempt from this limit and the next two.
   */
  readonly streams: number;
  /** Open streams and long-running calls of one address. */
  readonly streamsPerPeer: number;
  /** Open streams and long-running calls of one principal. */
  readonly streamsPerPrincipal: number;
  /**
   * Open streams of control priority of one principal. An agent has one session and at most 32
   * tunnels.
   */
  readonly controlStreamsPerPrincipal: number;
  /**
   * Bytes of all requests (heads included) that are incoming or waiting. Beyond the limit, the
   * server aborts the largest call of the principal that holds the most bytes.
   */
  readonly waitingRequestBytes: number;
  /** Bytes of all responses that wait for their reader, with the same rule. */
  readonly unreadResponseBytes: number;
  /** Unread response bytes of one principal beyond which its next calls wait. */
  readonly unreadResponseBytesPerPrincipal: number;
  /** The server ends a call whose client reads no response data for this time. */
  readonly slowReaderTimeoutMs: number;
  /** Deadline of a unary call whose client sets no deadline. */
  readonly unaryDeadlineMs: number;
  /** Longest deadline that a client may set; at most 2^31-1, the longest timer of Node. */
  readonly maxTimeoutMs: number;
  /** Longest time from the first bytes of a TLS connection to the start of the handshake. */
  readonly handshakeWaitMs: number;
  /** Longest time from the start of a TLS handshake to its end. */
  readonly handshakeTimeoutMs: number;
  /**
   * Longest time from the start of a connection, or from the end of its TLS handshake, to the first
   * request head or HTTP/2 preface.
   */
  readonly headTimeoutMs: number;
  /**
   * Longest time from the head of a request to the end of its body; for a client stream, from the
   * end of the response.
   */
  readonly bodyTimeoutMs: number;
  /** Time after which a connection without calls is closed. */
  readonly idleTimeoutMs: number;
}

/** Limits for servers that users call. */
export const defaultRpcLimits: RpcLimits = {
  maxConnections: 10_000,
  // A handshake holds about 70 KB, and up to 170 KB while a large client certificate arrives.
  maxHandshakes: 1_024,
  maxConcurrentStreams: 128,
  maxHeaderBytes: 16 * 1024,
  maxSessionMemoryMb: 10,
  maxSessionInvalidFrames: 100,
  maxSessionRejectedStreams: 100,
  // A client that ends all its streams at once resets 128. nghttp2 has a limit as well (1 000, and
  // 33 in each second), but nghttp2 only sends GOAWAY and continues to read.
  resetBurst: 500,
  resetsPerSecond: 33,
  readMaxBytes: 4 * 1024 * 1024,
  // Parsing and validating a part takes up to 4 µs and 250 bytes on a small machine: 80 ms and 5 MB
  // for the worst message.
  maxMessageParts: 20_000,
  // Handlers of reads do not wait, and handlers of writes wait for a shared flush, so many calls
  // may run; callsPerIteration is the limit that protects the event loop. Queues are for bursts:
  // serving a call whose client no longer waits is wasted work. The control queue holds the
  // sessions of five thousand agents that connect at once.
  priorities: {
    control: { running: 512, waiting: 10_000, waitMs: 30_000 },
    stop: { running: 256, waiting: 1_024, waitMs: 20_000 },
    write: { running: 256, waiting: 1_024, waitMs: 10_000 },
    read: { running: 128, waiting: 1_024, waitMs: 5_000 },
  },
  runningPerPrincipal: 16,
  callsPerIteration: 8,
  // A large workload takes about 1 ms, so other calls wait for at most 8 ms.
  snapshotMessagesPerIteration: 8,
  // The inventory of an agent with hundreds of replicas blocks the event loop for milliseconds, and
  // thousands of agents send theirs at once when a coordinator starts. Heartbeats are read between.
  largeMessagesPerIteration: 4,
  streams: 2_048,
  // An unread stream holds about 100 KB, so one address holds at most 50 MB. An address may be an
  // office or a shared development machine: a hundred people with five watches each. Four such
  // addresses reach the limit of the server.
  streamsPerPeer: 512,
  streamsPerPrincipal: 64,
  controlStreamsPerPrincipal: 40,
  waitingRequestBytes: 64 * 1024 * 1024,
  unreadResponseBytes: 128 * 1024 * 1024,
  unreadResponseBytesPerPrincipal: 8 * 1024 * 1024,
  slowReaderTimeoutMs: 30_000,
  unaryDeadlineMs: 30_000,
  maxTimeoutMs: 24 * 60 * 60 * 1000,
  handshakeWaitMs: 60_000,
  handshakeTimeoutMs: 10_000,
  headTimeoutMs: 10_000,
  bodyTimeoutMs: 30_000,
  idleTimeoutMs: 60_000,
};

export interface RpcServerOptions {
  /** Address to listen on. Without `tls`: a loopback address or `localhost`. */
  readonly host: string;
  /** 0 to 65535; 0 lets the system choose. */
  readonly port: number;
  /** Registers the services. The server adds health and reflection. */
  readonly registerRoutes: (router: ConnectRouter) => void;
  /** Default: plaintext. */
  readonly tls?: ServerTls;
  /**
   * Decides for each call, also of health and reflection, whether its client may call. Those who
   * may use reflection also get the list of RPCs in help texts. Default: every client may call.
   */
  readonly authorize?: AuthorizeCall;
  /** Clock of every time limit except the deadlines of clients, which use the system clock. */
  readonly clock: Clock;
  /** Default: no log. */
  readonly log?: Log;
  /** The first is the outermost. All run inside the deadline of the server. */
  readonly interceptors?: readonly Interceptor[];
  /** Services that reflection shows in addition to health and reflection; default none. */
  readonly reflectedServices?: readonly DescService[];
  /**
   * Statuses of the health service. Services without a status get `serving`. Default: a new state,
   * in which every service has `serving`.
   */
  readonly health?: HealthState;
  /**
   * Web origins that may call the server, in addition to loopback origins in plaintext, or to the
   * origin of the server itself with `tls`. Default: none.
   */
  readonly allowedOrigins?: readonly string[];
  /** Overrides single values of {@link defaultRpcLimits}. */
  readonly limits?: Partial<RpcLimits>;
  /** Class of each RPC that `registerRoutes` registers. Default: every RPC is a write. */
  readonly classifyCall?: ClassifyCall;
  /**
   * Returns the name of the client whose limits a call counts against. Default: the name of the
   * principal that `authorize` returns; for anonymous clients, the id of the connection.
   * @param connection - Undefined when the connection closed while the call came in.
   */
  readonly getPrincipal?: (connection: ClientConnection | undefined, header: Headers) => string;
  /**
   * Returns the longest delay of the event loop since the previous call of this function, in
   * milliseconds. Default: 0, so no call is refused because of overload.
   */
  readonly getLoopLagMs?: () => number;
  /** Command-line option that error messages about the port name. Default `--port`. */
  readonly portOption?: string;
  /** Runs once for each connection, as soon as its protocol is known. */
  readonly onConnection?: (connection: ClientConnection) => void;
}

/** Current load of a server, and refusals since the start. */
export interface RpcLoad {
  readonly overload: OverloadLevel;
  readonly priorities: Readonly<Record<CallPriority, PriorityLoad>>;
  /** Open connections. */
  readonly connections: number;
  /** Connections closed because too many were open. */
  readonly connectionsDropped: number;
  /** Open streams and long-running calls, without those of control priority. */
  readonly streams: number;
  /** Streams refused because of a limit of streams. */
  readonly streamsRefused: number;
  /** Current value of the limit of the same name. */
  readonly waitingRequestBytes: number;
  /** Current value of the limit of the same name. */
  readonly unreadResponseBytes: number;
  /**
   * Calls ended because the client did not read the response, or because its principal held the
   * most memory when a budget was exceeded.
   */
  readonly slowReadersAborted: number;
}

/** A running server. */
export interface RpcServer {
  readonly address: { readonly host: string; readonly port: number };
  /** Base URL for clients, without a trailing slash. */
  readonly url: string;
  readonly openConnections: number;
  getLoad(): RpcLoad;
  /**
   * Ends the open streams and running calls whose clients may no longer call. Without this call,
   * they end within a second after their `Caller.check` throws.
   */
  recheckCallers(): void;
  /**
   * Accepts nothing new, ends streams with UNAVAILABLE at once, lets other calls run for `graceMs`,
   * then destroys the rest. Resolves when the last socket is closed. Later calls return the same
   * promise.
   * @param graceMs - Grace period in milliseconds, 0 or more. Default 0.
   */
  close(graceMs?: number): Promise<void>;
}
