import type {
  AgentMessage,
  AuthorizeAgentCallRequest,
  AuthorizeAgentCallResponse,
  CoordinatorMessage,
  EnrollNodeRequest,
  EnrollNodeResponse,
  GetReplicaFilesRequest,
  GetReplicaFilesResponse,
  IssueWorkloadCertificateRequest,
  NodeCertificate,
  RenewNodeCertificateRequest,
  TunnelFrame,
  WorkloadCertificate,
} from '@cloudless/api';

/**
 * Opens connections to coordinators. Failures are `CloudlessError`s; kind `unavailable` when no
 * coordinator answers.
 */
export interface CoordinatorTransport {
  /**
   * Opens a new connection. Rejects when `signal` is aborted before the connection is open.
   * @param address - Base URL of a coordinator: `http://127.0.0.1:8080`.
   * @param onReached - Called when the machine at the address has accepted the TCP connection, before
   *   the TLS handshake.
   */
  connect(
    address: string,
    signal: AbortSignal,
    onReached?: () => void,
  ): Promise<CoordinatorConnection>;
}

/**
 * Calls that need the certificate of the node. They fail with NO_IDENTITIES in a cluster without
 * identities.
 */
export interface IdentityCalls {
  /** The RenewNodeCertificate call. The new certificate replaces that of the connection. */
  renewNodeCertificate(request: RenewNodeCertificateRequest): Promise<NodeCertificate>;
  /** The IssueWorkloadCertificate call. */
  issueWorkloadCertificate(request: IssueWorkloadCertificateRequest): Promise<WorkloadCertificate>;
  /** The AuthorizeAgentCall call. */
  authorizeAgentCall(request: AuthorizeAgentCallRequest): Promise<AuthorizeAgentCallResponse>;
}

/** Calls for the secrets and configs of replicas. */
export interface FileCalls {
  /**
   * The GetReplicaFiles call.
   * @param signal - Ends the call when aborted.
   */
  getReplicaFiles(
    request: GetReplicaFilesRequest,
    signal: AbortSignal,
  ): AsyncIterable<GetReplicaFilesResponse>;
}

/** One open connection. All its calls fail with `unavailable` when it is closed or breaks. */
export interface CoordinatorConnection extends IdentityCalls, FileCalls {
  /** The EnrollNode call. */
  enroll(request: EnrollNodeRequest): Promise<EnrollNodeResponse>;
  /**
   * The Session call. `outgoing` is read only as fast as the coordinator accepts messages; its end
   * closes the sending half.
   * @returns Messages of the coordinator; ends or throws with the call. Leaving the loop ends the
   *   call.
   */
  openSession(outgoing: AsyncIterable<AgentMessage>): AsyncIterable<CoordinatorMessage>;
  /** The Tunnel call; as {@link CoordinatorConnection.openSession}. */
  openTunnel(outgoing: AsyncIterable<TunnelFrame>): AsyncIterable<TunnelFrame>;
  /** Sends an HTTP/2 PING. Resolves with the answer, rejects when the connection breaks. */
  ping(): Promise<void>;
  /** Closes the connection and ends all its calls at once. A second call has no effect. */
  close(): void;
}
