import type {
  AgentMessage,
  CoordinatorMessage,
  EnrollNodeRequest,
  EnrollNodeResponse,
  TunnelFrame,
} from '@cloudless/api';

/**
 * How an agent reaches coordinators. Failures are `CloudlessError`s; `unavailable` when nobody
 * answers.
 */
export interface CoordinatorTransport {
  /**
   * Opens a connection of its own.
   * @param address - One of the configured coordinators: `http://127.0.0.1:8080`.
   */
  connect(address: string, signal: AbortSignal): Promise<CoordinatorConnection>;
}

/** One open connection. When it is closed, or breaks, all its calls fail with `unavailable`. */
export interface CoordinatorConnection {
  enroll(request: EnrollNodeRequest): Promise<EnrollNodeResponse>;
  /**
   * The Session call. `outgoing` is read only as fast as the other side takes it; when it ends, so
   * does our half.
   * @returns What the coordinator sends; ends, or throws, with the call. Leaving the loop ends the
   *   call.
   */
  openSession(outgoing: AsyncIterable<AgentMessage>): AsyncIterable<CoordinatorMessage>;
  /** The Tunnel call; as {@link CoordinatorConnection.openSession}. */
  openTunnel(outgoing: AsyncIterable<TunnelFrame>): AsyncIterable<TunnelFrame>;
  /** Sends an HTTP/2 PING; resolves when it was answered, rejects when the connection breaks. */
  ping(): Promise<void>;
  /** Ends the connection and all its calls at once. Twice is no error. */
  close(): void;
}
