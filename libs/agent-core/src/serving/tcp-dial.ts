/** One open TCP connection. */
export interface TcpStream {
  /**
   * Received data; ends when the other side has closed its half, throws when the connection breaks.
   * Can be read once.
   */
  readonly data: AsyncIterable<Uint8Array>;
  /**
   * Writes data. Resolves when more data may be written.
   * @throws kind `unavailable` when the connection is broken.
   */
  write(bytes: Uint8Array): Promise<void>;
  /** Closes the sending half; data can still be received. */
  end(): void;
  /** Closes the connection at once. A second call has no effect. */
  destroy(): void;
}

/**
 * Opens a TCP connection from this machine.
 * @throws kind `unavailable` with the cause, also after a timeout.
 */
export type TcpDial = (ip: string, port: number) => Promise<TcpStream>;
