import type { DescService } from '@bufbuild/protobuf';
import type { Clock, Log } from '@cloudless/base';
import type { ConnectRouter, Interceptor } from '@connectrpc/connect';
import type { Connection } from './connection.js';
import type { HealthState } from './health.js';

/** What one server grants its clients. Sizes in bytes, times in milliseconds. */
export interface RpcLimits {
  /** Open sockets of the server; more are closed at once. */
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
  /** One request message, before and after decompression. A service may set its own in `router.service`. */
  readonly readMaxBytes: number;
  /** Deadline of a unary call whose client states none. */
  readonly unaryDeadlineMs: number;
  /** Longest deadline a client may state; at most 2^31-1, the longest timer there is. */
  readonly maxTimeoutMs: number;
  /** From the start of a connection to its first complete request head, or to the preface of HTTP/2. */
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
  readMaxBytes: 4 * 1024 * 1024,
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
  /** What the health service answers; default: a new one in which everything serves. Services without a status get `serving`. */
  readonly health?: HealthState;
  /** Web origins that may call, beside those on loopback. */
  readonly allowedOrigins?: readonly string[];
  /** Replaces single values of {@link defaultRpcLimits}. */
  readonly limits?: Partial<RpcLimits>;
  /** The option that a message about a taken port names; default `--port`. */
  readonly portOption?: string;
  /** Called once for each connection as soon as its protocol is known. */
  readonly onConnection?: (connection: Connection) => void;
}

/** A server that accepts calls. */
export interface RpcServer {
  readonly address: { readonly host: string; readonly port: number };
  /** Base address for clients, without a slash at the end. */
  readonly url: string;
  /** Sockets open now. */
  readonly openConnections: number;
  /**
   * Accepts nothing new, ends streams with UNAVAILABLE at once, lets other calls end for `graceMs`, then destroys what is left.
   * Resolves when the last socket is closed; every later call joins the first.
   * @param graceMs - 0 or more; default 0.
   */
  close(graceMs?: number): Promise<void>;
}
