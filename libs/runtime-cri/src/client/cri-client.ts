import { setMaxListeners } from 'node:events';
import { connect } from 'node:net';
import { createClient, type Client } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { CloudlessError, type Clock } from '@cloudless/base';
import { ImageService, RuntimeService } from '../gen/runtime/v1/api_pb.js';
import { fromCriError } from './cri-errors.js';

/** Calls of the service for sandboxes and containers. */
export type RuntimeClient = Client<typeof RuntimeService>;
/** Calls of the service for images. */
export type ImageClient = Client<typeof ImageService>;

/** The container runtime of a client, and the time limits of its calls. */
export interface CriClientOptions {
  /** Absolute path of the Unix socket of the container runtime. */
  readonly socketPath: string;
  readonly clock: Clock;
  /** Timeout in milliseconds of {@link CriClient.callQuick} and `callQuickImage`. Default 30 s. */
  readonly quickTimeoutMs?: number;
  /**
   * Called when a call succeeds after an earlier call failed because the runtime was unreachable, or
   * after a {@link CriClient.callQuick} or `callQuickImage` exceeded its timeout: the runtime may
   * have been restarted or reconfigured in the meantime. Work that exceeds its timeout does not
   * count, because the runtime answers other calls.
   */
  readonly onReconnected?: () => void;
}

/** Default timeout of reads and small changes. A runtime that needs longer is stuck. */
const QUICK_TIMEOUT_MS = 30_000;
/**
 * Timeout of calls that create, start, stop or remove sandboxes and containers: mounts and networks
 * take long on a busy machine.
 */
const SLOW_TIMEOUT_MS = 240_000;
/** Timeout of pulls and removals: an image may be large, and its registry slow. */
const PULL_TIMEOUT_MS = 30 * 60_000;
/** Largest accepted response: a list of several thousand containers with their annotations. */
const READ_MAX_BYTES = 64 * 1024 * 1024;
const API_VERSION = 'v1';
/** Only its host name is sent, as the HTTP/2 authority: the connection goes to the socket. */
const BASE_URL = 'http://localhost';

/** Name and version that a container runtime reports. */
export interface CriVersion {
  readonly runtimeName: string;
  readonly runtimeVersion: string;
}

/**
 * Client of one container runtime over its socket. Every call has a timeout and fails with a {@link
 * CloudlessError}, as {@link fromCriError} describes. The client connects at the first call, and
 * again after the connection broke. The caller must close the client.
 */
export class CriClient {
  private readonly closing = new AbortController();
  private isUnreachable = false;
  /** Monotonic time of the first quick call since the last response; undefined after a response. */
  private unansweredSinceMs: number | undefined;
  private readonly sessions: Http2SessionManager;
  private readonly runtimeCalls: RuntimeClient;
  private readonly imageCalls: ImageClient;

  constructor(private readonly options: CriClientOptions) {
    setMaxListeners(0, this.closing.signal); // one of each call in flight
    this.sessions = new Http2SessionManager(
      BASE_URL,
      {},
      { createConnection: () => connect(options.socketPath) },
    );
    const transport = createGrpcTransport({
      baseUrl: BASE_URL,
      readMaxBytes: READ_MAX_BYTES,
      sessionManager: this.sessions,
    });
    this.runtimeCalls = createClient(RuntimeService, transport);
    this.imageCalls = createClient(ImageService, transport);
  }

  get socketPath(): string {
    return this.options.socketPath;
  }

  /** Aborted when this client is closed. */
  get closed(): AbortSignal {
    return this.closing.signal;
  }

  /**
   * Milliseconds since the oldest {@link CriClient.callQuick} that has had no response, neither to
   * itself nor to a later call. 0 after any response of the runtime, also an error.
   */
  get unansweredMs(): number {
    return this.unansweredSinceMs === undefined
      ? 0
      : this.options.clock.now() - this.unansweredSinceMs;
  }

  /**
   * Makes a call that the runtime answers without work of its own, such as a list or a status.
   * @param name - Name of the call, for error messages.
   * @param call - Makes the call with the given client and signal.
   */
  callQuick<Result>(
    name: string,
    call: (client: RuntimeClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    this.unansweredSinceMs ??= this.options.clock.now();
    return this.callQuickly(name, (signal) => call(this.runtimeCalls, signal));
  }

  /**
   * Makes a call for which the runtime does work, such as the start of a container. Its timeout is
   * 4 min.
   * @param extraMs - Milliseconds to add to the timeout, such as the grace period of a stop.
   */
  callSlow<Result>(
    name: string,
    call: (client: RuntimeClient, signal: AbortSignal) => Promise<Result>,
    extraMs = 0,
  ): Promise<Result> {
    return this.callWithin(SLOW_TIMEOUT_MS + extraMs, name, (signal) =>
      call(this.runtimeCalls, signal),
    );
  }

  /** Makes a call about images that the runtime answers without work of its own. */
  callQuickImage<Result>(
    name: string,
    call: (client: ImageClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    return this.callQuickly(name, (signal) => call(this.imageCalls, signal));
  }

  /** Makes a call that pulls or removes images. Its timeout is 30 min. */
  callImage<Result>(
    name: string,
    call: (client: ImageClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    return this.callWithin(PULL_TIMEOUT_MS, name, (signal) => call(this.imageCalls, signal));
  }

  /**
   * Yields the id of a container, as the runtime names the container, at each event of that
   * container, until `signal` is aborted.
   * @throws kind `unimplemented` for runtimes without events, `unavailable` when the connection
   *   breaks.
   */
  async *events(signal: AbortSignal): AsyncGenerator<string> {
    if (this.closing.signal.aborted) throw createClosedError();
    try {
      for await (const { containerId } of this.runtimeCalls.getContainerEvents({}, { signal }))
        yield containerId;
    } catch (reason) {
      if (!signal.aborted)
        throw fromCriError(reason, { call: 'GetContainerEvents', socketPath: this.socketPath });
    }
  }

  /**
   * Returns name and version of the runtime.
   * @throws kind `unavailable` when no runtime answers, `unimplemented` when the runtime has
   *   another version of the interface.
   */
  async version(): Promise<CriVersion> {
    let version: CriVersion & { readonly runtimeApiVersion: string };
    try {
      version = await this.callQuick('Version', (client, signal) =>
        client.version({ version: API_VERSION }, { signal }),
      );
    } catch (reason) {
      if (!(reason instanceof CloudlessError) || reason.kind !== 'unimplemented') throw reason;
      throw this.createVersionError('no runtime.v1', reason);
    }
    if (version.runtimeApiVersion === API_VERSION) return version;
    throw this.createVersionError(
      `${version.runtimeName} ${version.runtimeVersion} speaks ${version.runtimeApiVersion || 'no version'}`,
    );
  }

  /**
   * Ends all calls and the connection, because an open connection keeps this process alive. The
   * ended calls and later calls fail with kind `unavailable`.
   */
  close(): void {
    this.closing.abort();
    this.sessions.abort();
  }

  private createVersionError(actual: string, cause?: unknown): CloudlessError {
    return new CloudlessError(
      'unimplemented',
      `the container runtime at ${this.socketPath} is not supported (${actual}): Cloudless needs runtime.v1 of the Container Runtime Interface, as in containerd 1.6, CRI-O 1.23 and newer`,
      cause === undefined ? {} : { cause },
    );
  }

  private callQuickly<Result>(
    name: string,
    call: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    const limitMs = this.options.quickTimeoutMs ?? QUICK_TIMEOUT_MS;
    return this.callWithin(limitMs, name, call, () => (this.isUnreachable = true));
  }

  /** @param onTimeout - Called when the call exceeds `limitMs`. */
  private async callWithin<Result>(
    limitMs: number,
    name: string,
    call: (signal: AbortSignal) => Promise<Result>,
    onTimeout: () => void = () => undefined,
  ): Promise<Result> {
    if (this.closing.signal.aborted) throw createClosedError();
    const limit = new AbortController();
    const end = (): void => limit.abort();
    let hasTimedOut = false;
    const timer = this.options.clock.setTimer(limitMs, () => {
      hasTimedOut = true;
      limit.abort();
    });
    this.closing.signal.addEventListener('abort', end, { once: true });
    try {
      const result = await call(limit.signal);
      this.recordResponse();
      return result;
    } catch (reason) {
      if (this.closing.signal.aborted) throw createClosedError();
      if (hasTimedOut) {
        onTimeout();
        throw new CloudlessError(
          'unavailable',
          `the container runtime at ${this.socketPath} did not answer ${name} in ${limitMs} ms: see its log`,
          { cause: reason },
        );
      }
      const failure = fromCriError(reason, { call: name, socketPath: this.socketPath });
      if (failure.kind === 'unavailable') this.isUnreachable = true;
      else this.unansweredSinceMs = undefined; // an error is a response, too
      throw failure;
    } finally {
      timer.cancel();
      this.closing.signal.removeEventListener('abort', end);
    }
  }

  private recordResponse(): void {
    this.unansweredSinceMs = undefined;
    if (!this.isUnreachable) return;
    this.isUnreachable = false;
    this.options.onReconnected?.();
  }
}

/** Creates the error for calls of a closed runtime. */
export function createClosedError(): CloudlessError {
  return new CloudlessError('unavailable', 'this runtime is closed');
}
