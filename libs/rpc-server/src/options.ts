import type { DescService } from '@bufbuild/protobuf';
import type { Clock, Log } from '@cloudless/base';
import type { ConnectRouter, Interceptor } from '@connectrpc/connect';
import type { Connection } from './connection.js';
import type { LaneLoad } from './admission.js';
import type { HealthState } from './health.js';
import type { ClassOf, Lane, LaneLimits } from './lanes.js';
import type { OverloadLevel } from './overload.js';

/** What one server grants its clients. Sizes in bytes, times in milliseconds. */
export interface RpcLimits {
  /**
   * Open sockets of the server. One more takes the place of the oldest on which no call is open; if
   * there is none, it is closed at once.
   */
  readonly maxConnections: number;
  /** Streams one HTTP/2 session may have open. */
  readonly maxConcurrentStreams: number;
  /** Head of one request, HTTP/1.1 and HTTP/2 alike. */
  readonly maxHeaderBytes: number;
  /** Memory of one HTTP/2 session, in MB (10^6), as Node counts it. */
  readonly maxSessionMemoryMb: number;
  /** Invalid frames before an HTTP/2 session is destroyed. */
  readonly maxSessionInvalidFrames: number;
  /** Refused streams before an HTTP/2 session is destroyed. */
  readonly maxSessionRejectedStreams: number;
  /**
   * Streams that a client may reset in a burst, and then each second, before its HTTP/2 session is
   * destroyed (CVE-2023-44487).
   */
  readonly resetBurst: number;
  readonly resetsPerSecond: number;
  /**
   * One request message, before and after decompression. A service may set its own in
   * `router.service`.
   */
  readonly readMaxBytes: number;
  /**
   * Fields, elements and map entries of one request message, 32 characters of text counted as one:
   * what bounds the time and memory its parser takes.
   */
  readonly maxMessageParts: number;
  /** What each lane may hold. */
  readonly lanes: Readonly<Record<Lane, LaneLimits>>;
  /**
   * Calls of one principal whose handlers work at the same time, in each lane; others of it wait.
   * Control calls are exempt.
   */
  readonly runningPerPrincipal: number;
  /** Calls of users that begin in one turn of the event loop; one, while it is overloaded. */
  readonly callsPerTurn: number;
  /**
   * Messages of snapshots that are produced in one turn of the event loop, for all users together.
   */
  readonly snapshotMessagesPerTurn: number;
  /**
   * Streams and long calls that are open: of all users together, of one address, and of one
   * principal.
   */
  readonly streams: number;
  readonly streamsPerPeer: number;
  readonly streamsPerPrincipal: number;
  /** The same for streams of the control lane: an agent has a session and at most 32 tunnels. */
  readonly controlStreamsPerPrincipal: number;
  /**
   * Bytes of requests that come in or wait for their turn, heads included, and of answers that wait
   * to be read. Beyond it who holds the most is cut.
   */
  readonly waitingRequestBytes: number;
  readonly unreadAnswerBytes: number;
  /**
   * With more answers unread than this, in bytes, a principal's next calls wait until it has read.
   */
  readonly unreadAnswerBytesPerPrincipal: number;
  /** A call whose answer is not read for so long is ended. */
  readonly readerStallMs: number;
  /** Deadline of a unary call whose client states none. */
  readonly unaryDeadlineMs: number;
  /** Longest deadline a client may state; at most 2^31-1, the longest timer there is. */
  readonly maxTimeoutMs: number;
  /**
   * From the start of a connection to its first complete request head, or to the preface of HTTP/2.
   */
  readonly headTimeoutMs: number;
  /** From a request's head to the end of its body; calls whose client streams are exempt. */
  readonly bodyTimeoutMs: number;
  /** How long a connection without a call stays open. */
  readonly idleTimeoutMs: number;
}

/** The limits of RELIABILITY, "Security baseline", for servers that users call. */
export const defaultRpcLimits: RpcLimits = {
  maxConnections: 10_000,
  maxConcurrentStreams: 128,
  maxHeaderBytes: 16 * 1024,
  maxSessionMemoryMb: 10,
  maxSessionInvalidFrames: 100,
  maxSessionRejectedStreams: 100,
  // A client that ends all its streams at once resets 128. nghttp2 has a limit too, 1 000 and 33:
  // it then says GOAWAY but goes on reading.
  resetBurst: 500,
  resetsPerSecond: 33,
  readMaxBytes: 4 * 1024 * 1024,
  // Parsed and validated, a part takes up to 4 µs and 250 bytes on a small machine: 80 ms and 5 MB
  // for the worst message.
  maxMessageParts: 20_000,
  // Handlers of reads do not wait, those of writes wait for the flush they share: many may run,
  // what counts is how many begin in a turn. Waiting is for bursts: what waits longer than its
  // client cares for is wasted. Five thousand agents that join wait all at once.
  lanes: {
    control: { running: 512, waiting: 10_000, waitMs: 30_000 },
    stop: { running: 256, waiting: 1_024, waitMs: 20_000 },
    write: { running: 256, waiting: 1_024, waitMs: 10_000 },
    read: { running: 128, waiting: 1_024, waitMs: 5_000 },
  },
  runningPerPrincipal: 16,
  callsPerTurn: 8,
  // A large workload takes about 1 ms, so other calls wait for 8 ms at most.
  snapshotMessagesPerTurn: 8,
  streams: 2_048,
  // A stream that is not read holds about 100 KB, so one address holds 50 MB. An address may be an
  // office or a whole development machine: room for a hundred people with five watches each. Only
  // four such addresses fill the server.
  streamsPerPeer: 512,
  streamsPerPrincipal: 64,
  controlStreamsPerPrincipal: 40,
  waitingRequestBytes: 64 * 1024 * 1024,
  unreadAnswerBytes: 128 * 1024 * 1024,
  unreadAnswerBytesPerPrincipal: 8 * 1024 * 1024,
  readerStallMs: 30_000,
  unaryDeadlineMs: 30_000,
  maxTimeoutMs: 24 * 60 * 60 * 1000,
  headTimeoutMs: 10_000,
  bodyTimeoutMs: 30_000,
  idleTimeoutMs: 60_000,
};

/** What {@link startRpcServer} needs. */
export interface RpcServerOptions {
  /** A loopback address or `localhost`; anything else is refused. */
  readonly host: string;
  /** 0 to 65535; 0 lets the system choose. */
  readonly port: number;
  /** Registers the services. Health and reflection are added by the server. */
  readonly routes: (router: ConnectRouter) => void;
  /** Steers every limit but the deadlines that clients state, which run on the machine's clock. */
  readonly clock: Clock;
  /** Default: silent. */
  readonly log?: Log;
  /** First is outermost; they run inside the server's own deadline. */
  readonly interceptors?: readonly Interceptor[];
  /** Services that reflection shows, beside health and reflection; default none. */
  readonly reflectedServices?: readonly DescService[];
  /**
   * What the health service answers; default: a new one in which everything serves. Services
   * without a status get `serving`.
   */
  readonly health?: HealthState;
  /** Web origins that may call, beside those on loopback. */
  readonly allowedOrigins?: readonly string[];
  /** Replaces single values of {@link defaultRpcLimits}. */
  readonly limits?: Partial<RpcLimits>;
  /** The lane of each RPC that `routes` registers; default: every one writes. */
  readonly classOf?: ClassOf;
  /**
   * Whose share a call counts against; default: its connection.
   * @param connection - Undefined when it closed while the call came in.
   */
  readonly principalOf?: (connection: Connection | undefined, header: Headers) => string;
  /**
   * The longest delay of the event loop since the last call, in milliseconds; default: no delay is
   * seen, and nothing is shed for it.
   */
  readonly loopLagMs?: () => number;
  /** The option that a message about a taken port names; default `--port`. */
  readonly portOption?: string;
  /** Called once for each connection as soon as its protocol is known. */
  readonly onConnection?: (connection: Connection) => void;
}

/** What a server holds now, and what it has refused since the start. */
export interface RpcLoad {
  readonly overload: OverloadLevel;
  readonly lanes: Readonly<Record<Lane, LaneLoad>>;
  readonly connections: number;
  /** Connections closed because too many were open. */
  readonly connectionsDropped: number;
  /** Open streams and long calls, without those of the control lane. */
  readonly streams: number;
  readonly streamsRefused: number;
  readonly waitingRequestBytes: number;
  readonly unreadAnswerBytes: number;
  /**
   * Calls ended because their answer was not read, or because their client held the most of all
   * memory for clients.
   */
  readonly readersCut: number;
}

/** A server that accepts calls. */
export interface RpcServer {
  readonly address: { readonly host: string; readonly port: number };
  /** Base address for clients, without a slash at the end. */
  readonly url: string;
  /** Sockets open now. */
  readonly openConnections: number;
  load(): RpcLoad;
  /**
   * Accepts nothing new, ends streams with UNAVAILABLE at once, lets other calls end for `graceMs`,
   * then destroys what is left. Resolves when the last socket is closed; every later call joins the
   * first.
   * @param graceMs - 0 or more; default 0.
   */
  close(graceMs?: number): Promise<void>;
}
