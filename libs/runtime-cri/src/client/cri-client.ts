import { connect } from 'node:net';
import { CloudlessError, type Clock } from '@cloudless/base';
import { createClient, type Client } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { ImageService, RuntimeService } from '../gen/runtime/v1/api_pb.js';
import { fromCriError } from './cri-errors.js';

export type RuntimeClient = Client<typeof RuntimeService>;
export type ImageClient = Client<typeof ImageService>;

/** Needs of a {@link CriClient}. */
export interface CriClientOptions {
  /** Absolute path of the runtime's Unix socket. */
  readonly socketPath: string;
  readonly clock: Clock;
  /** How long a call may take that is answered soon or never. Default 30 s. */
  readonly quickMs?: number;
  /** Called when the runtime answers after it did not. */
  readonly onReturn?: () => void;
}

/** Reading and small changes; a runtime that needs longer is stuck. */
const QUICK_MS = 30_000;
/** Sandboxes and containers: mounts and networks of a busy machine. */
const SLOW_MS = 240_000;
/** Images are as large as they are, and registries as slow. */
const PULL_MS = 30 * 60_000;
/** Lists of some thousand containers with their annotations. */
const READ_MAX_BYTES = 64 * 1024 * 1024;
const API_VERSION = 'v1';
/** Sent to the runtime; the connection goes to its socket. */
const BASE_URL = 'http://localhost';

/** What the runtime said of itself. */
export interface CriVersion {
  readonly runtimeName: string;
  readonly runtimeVersion: string;
}

/**
 * Calls of one container runtime over its socket, each with a deadline and failures of our kinds.
 * Reconnects by itself.
 */
export class CriClient {
  private readonly closing = new AbortController();
  private away = false;
  /**
   * When the first quick call since the last answer was made, on the monotonic clock; undefined
   * after an answer.
   */
  private silentSince: number | undefined;
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

  /** For how many milliseconds no quick call has been answered; 0 after an answer. */
  get silentMs(): number {
    return this.silentSince === undefined ? 0 : this.options.clock.now() - this.silentSince;
  }

  /** A call that is answered soon or never. */
  quick<Result>(
    name: string,
    call: (client: RuntimeClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    this.silentSince ??= this.options.clock.now();
    return this.within(this.options.quickMs ?? QUICK_MS, name, (signal) =>
      call(this.runtimeCalls, signal),
    );
  }

  /** A call that does work. `extraMs`: what it is to wait for beside. */
  slow<Result>(
    name: string,
    call: (client: RuntimeClient, signal: AbortSignal) => Promise<Result>,
    extraMs = 0,
  ): Promise<Result> {
    return this.within(SLOW_MS + extraMs, name, (signal) => call(this.runtimeCalls, signal));
  }

  /** A call about images that is answered soon or never. */
  quickImage<Result>(
    name: string,
    call: (client: ImageClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    return this.within(this.options.quickMs ?? QUICK_MS, name, (signal) =>
      call(this.imageCalls, signal),
    );
  }

  /** A call about images. */
  image<Result>(
    name: string,
    call: (client: ImageClient, signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    return this.within(PULL_MS, name, (signal) => call(this.imageCalls, signal));
  }

  /**
   * Ids of containers as something happens to them, until `signal` is aborted. @throws kind
   * `unimplemented` for older runtimes.
   */
  async *events(signal: AbortSignal): AsyncGenerator<string> {
    if (this.closing.signal.aborted) throw closedError();
    try {
      for await (const { containerId } of this.runtimeCalls.getContainerEvents({}, { signal }))
        yield containerId;
    } catch (reason) {
      if (!signal.aborted)
        throw fromCriError(reason, { call: 'GetContainerEvents', socketPath: this.socketPath });
    }
  }

  /**
   * @throws kind `unavailable` when nobody answers, `unimplemented` when it speaks another version
   * of the interface.
   */
  async version(): Promise<CriVersion> {
    let version: CriVersion & { readonly runtimeApiVersion: string };
    try {
      version = await this.quick('Version', (client, signal) =>
        client.version({ version: API_VERSION }, { signal }),
      );
    } catch (reason) {
      if (!(reason instanceof CloudlessError) || reason.kind !== 'unimplemented') throw reason;
      throw this.wrongVersion('no runtime.v1', reason);
    }
    if (version.runtimeApiVersion === API_VERSION) return version;
    throw this.wrongVersion(
      `${version.runtimeName} ${version.runtimeVersion} speaks ${version.runtimeApiVersion || 'no version'}`,
    );
  }

  /**
   * Ends all calls and the connection, which would keep the process alive; later calls fail with
   * kind `unavailable`.
   */
  close(): void {
    this.closing.abort();
    this.sessions.abort();
  }

  private wrongVersion(found: string, cause?: unknown): CloudlessError {
    return new CloudlessError(
      'unimplemented',
      `the container runtime at ${this.socketPath} does not fit (${found}): runtime.v1 of the Container Runtime Interface is needed, as in containerd 1.6, CRI-O 1.23 and newer`,
      cause === undefined ? {} : { cause },
    );
  }

  private async within<Result>(
    limitMs: number,
    name: string,
    call: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    if (this.closing.signal.aborted) throw closedError();
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
      this.noteAnswer();
      return result;
    } catch (reason) {
      if (this.closing.signal.aborted) throw closedError();
      if (late) {
        throw new CloudlessError(
          'unavailable',
          `the container runtime at ${this.socketPath} did not answer ${name} in ${limitMs} ms: see its log`,
          { cause: reason },
        );
      }
      const failure = fromCriError(reason, { call: name, socketPath: this.socketPath });
      if (failure.kind === 'unavailable') this.away = true;
      else this.silentSince = undefined; // a refusal is an answer
      throw failure;
    } finally {
      timer.cancel();
      this.closing.signal.removeEventListener('abort', end);
    }
  }

  private noteAnswer(): void {
    this.silentSince = undefined;
    if (!this.away) return;
    this.away = false;
    this.options.onReturn?.();
  }
}

/** What calls of a closed runtime fail with. */
export function closedError(): CloudlessError {
  return new CloudlessError('unavailable', 'this runtime is closed');
}
