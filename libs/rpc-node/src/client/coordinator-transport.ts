import type * as http2 from 'node:http2';
import { CloudlessError } from '@cloudless/base';
import {
  createCoordinatorClient,
  createIdentityClient,
  fromConnectError,
  type AgentMessage,
  type AuthorizeAgentCallRequest,
  type AuthorizeAgentCallResponse,
  type CoordinatorClient,
  type CoordinatorMessage,
  type EnrollNodeRequest,
  type EnrollNodeResponse,
  type GetReplicaFilesRequest,
  type GetReplicaFilesResponse,
  type IdentityClient,
  type IssueWorkloadCertificateRequest,
  type NodeCertificate,
  type RenewNodeCertificateRequest,
  type TunnelFrame,
  type WorkloadCertificate,
} from '@cloudless/api';
import { createGrpcTransportOver, type CallInterceptors } from './grpc-transport.js';
import type { ClientTls } from './tls/client-tls.js';
import { connectHttp2Session, destroyInNextTurn, waitForSettings } from './tls/http2-session.js';

/** Limit of one message from the coordinator. Larger than the largest order, which has a spec. */
const READ_MAX_BYTES = 8 * 1024 * 1024;

/** Settings of {@link createCoordinatorTransport}. */
export interface CoordinatorTransportOptions {
  /** Interceptors of all calls; the first is the outermost. Default: none. */
  readonly interceptors?: CallInterceptors;
  /**
   * Returns the current key, certificates and servers; called for each connection to an address
   * with `https://`, for which it is needed.
   */
  readonly tls?: () => ClientTls;
}

/**
 * Creates a transport that opens HTTP/2 connections to coordinators, with TLS 1.3 to `https://` and
 * in plaintext to `http://`. An agent keeps its lease by HTTP/2 PING, so an agent must own its
 * connection: the session manager of Connect restarts its ping timer whenever data arrives, and
 * therefore cannot keep a lease.
 * @example
 * const transport = createCoordinatorTransport({ tls: () => clientTls });
 * const connection = await transport.connect('https://10.0.0.1:8080', signal);
 * await connection.ping();
 * connection.close();
 */
export const createCoordinatorTransport = ({
  interceptors = [],
  tls,
}: CoordinatorTransportOptions = {}) => ({
  /**
   * Opens a new connection, which the caller must close.
   * @param address - Base URL, such as `https://10.0.0.1:8080`.
   * @param signal - Aborts the attempt; has no effect once the connection is open.
   * @param onReached - Called when the TCP connection is open, before a TLS handshake.
   * @throws kind `unavailable` when the coordinator cannot be reached, or `signal` is aborted
   *   first; CERTIFICATE_INVALID, CERTIFICATE_EXPIRED or CERTIFICATE_NOT_YET_VALID when the
   *   coordinator is not trusted; `precondition` for `https://` without `tls`, and for `http://` when
   *   the coordinator speaks TLS.
   */
  connect: async (
    address: string,
    signal: AbortSignal,
    onReached?: () => void,
  ): Promise<CoordinatorConnection> => {
    const clientTls = address.startsWith('https:') ? tls?.() : undefined;
    const session = await connectHttp2Session(address, clientTls, signal, onReached);
    if (clientTls === undefined) await waitForSettings(address, session, signal);
    return new CoordinatorConnection(session, address, interceptors);
  },
});

/** A transport without interceptors, for plaintext. */
export const coordinatorTransport = createCoordinatorTransport();

/**
 * One open connection. All its calls fail with kind `unavailable` once the connection is closed or
 * broken.
 */
export class CoordinatorConnection {
  private readonly client: CoordinatorClient;
  private readonly identityClient: IdentityClient;
  private readonly closing = new AbortController();
  private isClosed = false;
  /** Rejects each ping without an answer; called when the connection is closed. */
  private readonly rejectPings = new Set<() => void>();

  constructor(
    private readonly session: http2.ClientHttp2Session,
    address: string,
    interceptors: CallInterceptors = [],
  ) {
    // The only listener, however many pings wait.
    session.once('close', () => this.end());
    const transport = createGrpcTransportOver(session, address, READ_MAX_BYTES, interceptors);
    this.client = createCoordinatorClient(transport);
    this.identityClient = createIdentityClient(transport);
  }

  /** Enrols the node of the agent. */
  enroll(request: EnrollNodeRequest): Promise<EnrollNodeResponse> {
    return this.call((options) => this.client.enrollNode(request, options));
  }

  /** Renews the certificate of the node. The new certificate replaces that of the connection. */
  renewNodeCertificate(request: RenewNodeCertificateRequest): Promise<NodeCertificate> {
    return this.call((options) => this.identityClient.renewNodeCertificate(request, options));
  }

  /** Obtains a certificate for the workload of a replica on the node. */
  issueWorkloadCertificate(request: IssueWorkloadCertificateRequest): Promise<WorkloadCertificate> {
    return this.call((options) => this.identityClient.issueWorkloadCertificate(request, options));
  }

  /** Asks whether a user may make a call to the AgentService of the node. */
  authorizeAgentCall(request: AuthorizeAgentCallRequest): Promise<AuthorizeAgentCallResponse> {
    return this.call((options) => this.identityClient.authorizeAgentCall(request, options));
  }

  /**
   * Starts the GetReplicaFiles call for the secrets and configs of a replica.
   * @param signal - Ends the call when aborted.
   */
  getReplicaFiles(
    request: GetReplicaFilesRequest,
    signal: AbortSignal,
  ): AsyncIterable<GetReplicaFilesResponse> {
    return this.openStream((closed) =>
      this.client.getReplicaFiles(request, { signal: AbortSignal.any([closed, signal]) }),
    );
  }

  /**
   * Starts the Session call. The connection reads `outgoing` only as fast as the coordinator
   * receives. Leaving the loop over the result ends the call.
   */
  openSession(outgoing: AsyncIterable<AgentMessage>): AsyncIterable<CoordinatorMessage> {
    return this.openStream((signal) => this.client.session(outgoing, { signal }));
  }

  /**
   * Starts the Tunnel call, with the flow control and end of {@link
   * CoordinatorConnection.openSession}.
   */
  openTunnel(outgoing: AsyncIterable<TunnelFrame>): AsyncIterable<TunnelFrame> {
    return this.openStream((signal) => this.client.tunnel(outgoing, { signal }));
  }

  /**
   * Sends an HTTP/2 PING. Resolves at the reply.
   * @throws kind `unavailable` when the connection is closed or breaks first.
   */
  ping(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.isEnded || this.session.closed) return reject(createConnectionError());
      const rejectPing = (): void => reject(createConnectionError());
      this.rejectPings.add(rejectPing);
      const sent = this.session.ping((reason) => {
        this.rejectPings.delete(rejectPing);
        if (reason === null) resolve();
        else reject(createConnectionError(reason));
      });
      if (sent) return;
      this.rejectPings.delete(rejectPing);
      rejectPing();
    });
  }

  /**
   * Ends all calls and pings with kind `unavailable`, in the next turn of the event loop. Begins no
   * calls any more. A second `close` has no effect.
   */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    destroyInNextTurn(this.session);
  }

  /** Ends all calls and pings with an error. */
  private end(): void {
    this.isClosed = true;
    this.closing.abort(new CloudlessError('unavailable', 'the connection was closed'));
    for (const rejectPing of this.rejectPings) rejectPing();
    this.rejectPings.clear();
  }

  private async call<Response>(
    start: (options: { readonly signal: AbortSignal }) => Promise<Response>,
  ): Promise<Response> {
    if (this.isEnded) throw createConnectionError();
    try {
      return await start({ signal: this.closing.signal });
    } catch (reason) {
      throw this.toFailure(reason);
    }
  }

  private async *openStream<Message>(
    start: (signal: AbortSignal) => AsyncIterable<Message>,
  ): AsyncGenerator<Message> {
    if (this.isEnded) throw createConnectionError();
    const call = new AbortController();
    const abortCall = (): void => call.abort(this.closing.signal.reason);
    this.closing.signal.addEventListener('abort', abortCall, { once: true });
    try {
      yield* start(call.signal);
    } catch (reason) {
      throw this.toFailure(reason);
    } finally {
      this.closing.signal.removeEventListener('abort', abortCall);
      call.abort();
    }
  }

  /** Converts the error of a call. Every error is `unavailable` once the connection is gone. */
  private toFailure(reason: unknown): CloudlessError {
    return this.isEnded ? createConnectionError(reason) : fromConnectError(reason);
  }

  private get isEnded(): boolean {
    return this.isClosed || this.session.destroyed;
  }
}

function createConnectionError(cause?: unknown): CloudlessError {
  return new CloudlessError(
    'unavailable',
    'the connection to the coordinator broke',
    cause === undefined ? {} : { cause },
  );
}
