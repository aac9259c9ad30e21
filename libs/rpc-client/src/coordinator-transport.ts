import * as http2 from 'node:http2';
import { CloudlessError } from '@cloudless/base';
import {
  createCoordinatorClient,
  fromConnectError,
  type AgentMessage,
  type CoordinatorClient,
  type CoordinatorMessage,
  type EnrollNodeRequest,
  type EnrollNodeResponse,
  type TunnelFrame,
} from '@cloudless/api';
import { grpcOver, type CallInterceptors } from './grpc-over.js';

/** Largest message a coordinator may send: an order with a large spec. */
const READ_MAX_BYTES = 8 * 1024 * 1024;

/**
 * Dials coordinators over HTTP/2 in plaintext. Each connection is one that we opened ourselves, so
 * that we can ping on it: Connect's own ping timer begins anew with all data and so cannot keep a
 * lease.
 */
export const createCoordinatorTransport = (interceptors: CallInterceptors = []) => ({
  /**
   * Opens a connection of its own.
   * @param address - `http://127.0.0.1:8080`.
   * @throws kind `unavailable` when nobody answers, or the signal is aborted before.
   */
  connect: (address: string, signal: AbortSignal): Promise<CoordinatorLink> =>
    new Promise((resolve, reject) => {
      const refuse = (cause: unknown): void =>
        reject(
          new CloudlessError('unavailable', `no coordinator was reached at ${address}`, { cause }),
        );
      if (signal.aborted) return refuse(signal.reason);
      const session = http2.connect(address);
      const giveUp = (): void => {
        session.destroy();
        refuse(signal.reason);
      };
      signal.addEventListener('abort', giveUp, { once: true });
      session.on('error', refuse); // also after the connection stood: calls and pings fail with it
      session.once('close', () => signal.removeEventListener('abort', giveUp));
      session.once('connect', () => {
        signal.removeEventListener('abort', giveUp);
        resolve(new CoordinatorLink(session, address, interceptors));
      });
    }),
});

/** The same without interceptors. */
export const coordinatorTransport = createCoordinatorTransport();

/** One open connection. When it is closed, or breaks, all its calls fail with `unavailable`. */
export class CoordinatorLink {
  private readonly client: CoordinatorClient;
  private readonly closing = new AbortController();

  constructor(
    private readonly session: http2.ClientHttp2Session,
    address: string,
    interceptors: CallInterceptors = [],
  ) {
    session.once('close', () =>
      this.closing.abort(new CloudlessError('unavailable', 'the connection was closed')),
    );
    this.client = createCoordinatorClient(grpcOver(session, address, READ_MAX_BYTES, interceptors));
  }

  async enroll(request: EnrollNodeRequest): Promise<EnrollNodeResponse> {
    try {
      return await this.client.enrollNode(request, { signal: this.closing.signal });
    } catch (reason) {
      throw this.failureOf(reason);
    }
  }

  /**
   * The Session call. `outgoing` is read only as fast as the other side takes it. Leaving the loop
   * ends the call.
   */
  openSession(outgoing: AsyncIterable<AgentMessage>): AsyncIterable<CoordinatorMessage> {
    return this.call((signal) => this.client.session(outgoing, { signal }));
  }

  /** The Tunnel call; as {@link CoordinatorLink.openSession}. */
  openTunnel(outgoing: AsyncIterable<TunnelFrame>): AsyncIterable<TunnelFrame> {
    return this.call((signal) => this.client.tunnel(outgoing, { signal }));
  }

  /** Sends an HTTP/2 PING; resolves when it was answered, rejects when the connection breaks. */
  ping(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.session.destroyed || this.session.closed) return reject(gone());
      const closed = (): void => reject(gone());
      this.session.once('close', closed);
      const sent = this.session.ping((reason) => {
        this.session.off('close', closed);
        if (reason === null) resolve();
        else reject(gone(reason));
      });
      if (!sent) reject(gone());
    });
  }

  /** Ends the connection and all its calls at once. Twice is no error. */
  close(): void {
    this.session.destroy();
  }

  private async *call<Message>(
    begin: (signal: AbortSignal) => AsyncIterable<Message>,
  ): AsyncGenerator<Message> {
    const call = new AbortController();
    const end = (): void => call.abort(this.closing.signal.reason);
    this.closing.signal.addEventListener('abort', end, { once: true });
    if (this.closing.signal.aborted) end();
    try {
      yield* begin(call.signal);
    } catch (reason) {
      throw this.failureOf(reason);
    } finally {
      this.closing.signal.removeEventListener('abort', end);
      call.abort();
    }
  }

  /** What a call failed with; once the connection is gone, that is the reason. */
  private failureOf(reason: unknown): CloudlessError {
    return this.closing.signal.aborted || this.session.destroyed
      ? gone(reason)
      : fromConnectError(reason);
  }
}

function gone(cause?: unknown): CloudlessError {
  return new CloudlessError(
    'unavailable',
    'the connection to the coordinator broke',
    cause === undefined ? {} : { cause },
  );
}
