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
import { createGrpcTransportOver, type CallInterceptors } from './grpc-transport.js';

/** Limit of one message from the coordinator: an order with a large spec. */
const READ_MAX_BYTES = 8 * 1024 * 1024;

/**
 * Creates a transport that opens plaintext HTTP/2 connections to coordinators. An agent keeps its
 * lease by HTTP/2 PING, so it must own its connection: the ping timer of Connect's session manager
 * restarts with all data and therefore cannot keep a lease.
 * @example
 * const link = await createCoordinatorTransport().connect('http://127.0.0.1:8080', signal);
 * await link.ping();
 * link.close();
 */
export const createCoordinatorTransport = (interceptors: CallInterceptors = []) => ({
  /**
   * Opens a new connection.
   * @param address - Base URL, such as `http://127.0.0.1:8080`.
   * @throws kind `unavailable` when the coordinator cannot be reached, or `signal` is aborted
   *   first.
   */
  connect: (address: string, signal: AbortSignal): Promise<CoordinatorConnection> =>
    new Promise((resolve, reject) => {
      const fail = (cause: unknown): void =>
        reject(
          new CloudlessError('unavailable', `no coordinator reached at ${address}`, { cause }),
        );
      if (signal.aborted) return fail(signal.reason);
      const session = http2.connect(address);
      const abortConnect = (): void => {
        session.destroy();
        fail(signal.reason);
      };
      signal.addEventListener('abort', abortConnect, { once: true });
      // also after the connection was established: calls and pings fail with the same error
      session.on('error', fail);
      session.once('close', () => signal.removeEventListener('abort', abortConnect));
      session.once('connect', () => {
        signal.removeEventListener('abort', abortConnect);
        resolve(new CoordinatorConnection(session, address, interceptors));
      });
    }),
});

/** A transport without interceptors. */
export const coordinatorTransport = createCoordinatorTransport();

/**
 * One open connection. All its calls fail with kind `unavailable` once the connection is closed or
 * broken.
 */
export class CoordinatorConnection {
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
    this.client = createCoordinatorClient(
      createGrpcTransportOver(session, address, READ_MAX_BYTES, interceptors),
    );
  }

  async enroll(request: EnrollNodeRequest): Promise<EnrollNodeResponse> {
    try {
      return await this.client.enrollNode(request, { signal: this.closing.signal });
    } catch (reason) {
      throw this.toFailure(reason);
    }
  }

  /**
   * Starts the Session call. `outgoing` is read only as fast as the coordinator receives. Leaving
   * the loop over the result ends the call.
   */
  openSession(outgoing: AsyncIterable<AgentMessage>): AsyncIterable<CoordinatorMessage> {
    return this.openStream((signal) => this.client.session(outgoing, { signal }));
  }

  /**
   * Starts the Tunnel call. Flow control and end are as for {@link CoordinatorConnection.openSession}.
   */
  openTunnel(outgoing: AsyncIterable<TunnelFrame>): AsyncIterable<TunnelFrame> {
    return this.openStream((signal) => this.client.tunnel(outgoing, { signal }));
  }

  /** Sends an HTTP/2 PING. Resolves at the reply; rejects when the connection breaks. */
  ping(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.session.destroyed || this.session.closed) return reject(createConnectionError());
      const closed = (): void => reject(createConnectionError());
      this.session.once('close', closed);
      const sent = this.session.ping((reason) => {
        this.session.off('close', closed);
        if (reason === null) resolve();
        else reject(createConnectionError(reason));
      });
      if (!sent) reject(createConnectionError());
    });
  }

  /** Closes the connection and ends all its calls at once. Later calls have no effect. */
  close(): void {
    this.session.destroy();
  }

  private async *openStream<Message>(
    begin: (signal: AbortSignal) => AsyncIterable<Message>,
  ): AsyncGenerator<Message> {
    const call = new AbortController();
    const end = (): void => call.abort(this.closing.signal.reason);
    this.closing.signal.addEventListener('abort', end, { once: true });
    if (this.closing.signal.aborted) end();
    try {
      yield* begin(call.signal);
    } catch (reason) {
      throw this.toFailure(reason);
    } finally {
      this.closing.signal.removeEventListener('abort', end);
      call.abort();
    }
  }

  /** Once the connection is gone, the reason of every failure is `unavailable`. */
  private toFailure(reason: unknown): CloudlessError {
    return this.closing.signal.aborted || this.session.destroyed
      ? createConnectionError(reason)
      : fromConnectError(reason);
  }
}

function createConnectionError(cause?: unknown): CloudlessError {
  return new CloudlessError(
    'unavailable',
    'the connection to the coordinator broke',
    cause === undefined ? {} : { cause },
  );
}
