import { connect } from 'node:net';
import { createClient, type Client } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { CloudlessError, type Clock } from '@cloudless/base';
import { ImageService, RuntimeService } from '../gen/runtime/v1/api_pb.js';
import { fromCriError } from './cri-errors.js';

export type RuntimeClient = Client<typeof RuntimeService>;
export type ImageClient = Client<typeof ImageService>;

export interface CriClientOptions {
  /** Absolute path of the Unix socket of the container runtime. */
  readonly socketPath: string;
  readonly clock: Clock;
  /** Timeout of a call that the runtime answers without doing work. Default 30 s. */
  readonly quickTimeoutMs?: number;
  /** Called on the first answer after the runtime was unreachable. */
  readonly onReconnected?: () => void;
}

/** Timeout of reads and small changes; a runtime that needs longer is stuck. */
const QUICK_TIMEOUT_MS = 30_000;
/** Timeout for sandboxes and containers: a busy machine takes long for mounts and networks. */
const SLOW_TIMEOUT_MS = 240_000;
/** Timeout for images, which may be large, from registries that may be slow. */
const PULL_TIMEOUT_MS = 30 * 60_000;
/** Largest answer: a list of some thousand containers with their annotations. */
const READ_MAX_BYTES = 64 * 1024 * 1024;
const API_VERSION = 'v1';
/** Authority that is sent to the runtime; the connection goes to its socket. */
const BASE_URL = 'http://localhost';

/** Name and version that a container runtime reports. */
export interface CriVersion {
  readonly runtimeName: string;
  readonly runtimeVersion: string;
}

/**
 * Client of one container runtime over its socket. Every call has a deadline and fails with a
 * {@link CloudlessError}. The client reconnects by itself.
 */
export class CriClient {
  private readonly closing = new AbortController();
  private isUnreachable = false;
  /** Monotonic time of the first quick call since the last answer; undefined after an answer. */
  private unansweredSince: number | undefined;
  private readonly sessions: Http2SessionManager;
  private readonly runtimeCalls: RuntimeClient;
  private readonly imageCalls: ImageClient;

  constructor(private readonly options: CriClientOptions) {
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

  /** Milliseconds for which no quick call has been answered; 0 after an answer. */
  get unansweredMs(): number {
    return this.unansweredSince === undefined ? 0 : this.options.clock.now() - this.unansweredSince;
  }

  /** Makes a call that the runtime answers without doing work. */
  callQuick<Result>(
    name: string,
    call: (client: RuntimeClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    this.unansweredSince ??= this.options.clock.now();
    return this.callWithin(this.options.quickTimeoutMs ?? QUICK_TIMEOUT_MS, name, (signal) =>
      call(this.runtimeCalls, signal),
    );
  }

  /**
   * Makes a call for which the runtime does work.
   * @param extraMs - Added to the timeout, for what the runtime itself waits for.
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

  /** Makes a call about images that the runtime answers without doing work. */
  callQuickImage<Result>(
    name: string,
    call: (client: ImageClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    return this.callWithin(this.options.quickTimeoutMs ?? QUICK_TIMEOUT_MS, name, (signal) =>
      call(this.imageCalls, signal),
    );
  }

  /** Makes a call that pulls or removes images. */
  callImage<Result>(
    name: string,
    call: (client: ImageClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    return this.callWithin(PULL_TIMEOUT_MS, name, (signal) => call(this.imageCalls, signal));
  }

  /**
   * Yields the id of a container whenever something happens to it, until `signal` is aborted.
   * @throws kind `unimplemented` for runtimes without events.
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
   * @throws kind `unavailable` when no runtime answers, `unimplemented` when it speaks another
   *   version of the interface.
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
   * Ends all calls and the connection, which would keep the process alive. Later calls fail with
   * kind `unavailable`.
   */
  close(): void {
    this.closing.abort();
    this.sessions.abort();
  }

  private createVersionError(found: string, cause?: unknown): CloudlessError {
    return new CloudlessError(
      'unimplemented',
      `the container runtime at ${this.socketPath} is not supported (${found}): Cloudless needs runtime.v1 of the Container Runtime Interface, as in containerd 1.6, CRI-O 1.23 and newer`,
      cause === undefined ? {} : { cause },
    );
  }

  private async callWithin<Result>(
    limitMs: number,
    name: string,
    call: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    if (this.closing.signal.aborted) throw createClosedError();
    const limit = new AbortController();
    const end = (): void => limit.abort();
    let late = false;
    const timer = this.options.clock.setTimer(limitMs, () => {
      late = true;
      limit.abort();
    });
    this.closing.signal.addEventListener('abort', end, { once: true });
    try {
      const result = await call(limit.signal);
      this.recordAnswer();
      return result;
    } catch (reason) {
      if (this.closing.signal.aborted) throw createClosedError();
      if (late) {
        throw new CloudlessError(
          'unavailable',
          `the container runtime at ${this.socketPath} did not answer ${name} in ${limitMs} ms: see its log`,
          { cause: reason },
        );
      }
      const failure = fromCriError(reason, { call: name, socketPath: this.socketPath });
      if (failure.kind === 'unavailable') this.isUnreachable = true;
      else this.unansweredSince = undefined; // an error response is an answer, too
      throw failure;
    } finally {
      timer.cancel();
      this.closing.signal.removeEventListener('abort', end);
    }
  }

  private recordAnswer(): void {
    this.unansweredSince = undefined;
    if (!this.isUnreachable) return;
    this.isUnreachable = false;
    this.options.onReconnected?.();
  }
}

/** Creates the error for calls of a closed runtime. */
export function createClosedError(): CloudlessError {
  return new CloudlessError('unavailable', 'this runtime is closed');
}
