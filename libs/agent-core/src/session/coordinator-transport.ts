import type {
  AgentMessage,
  CoordinatorMessage,
  EnrollNodeRequest,
  EnrollNodeResponse,
  TunnelFrame,
} from '@cloudless/api';

/**
 * Opens connections to coordinators. Failures are `CloudlessError`s; kind `unavailable` when no
 * coordinator answers.
 */
export interface CoordinatorTransport {
  /**
   * Opens a new connection. Rejects when `signal` is aborted before the connection is open.
   * @param address - One of the configured coordinators: `http://127.0.0.1:8080`.
   */
  connect(address: string, signal: AbortSignal): Promise<CoordinatorConnection>;
}

/** One open connection. All its calls fail with `unavailable` when it is closed or breaks. */
export interface CoordinatorConnection {
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
