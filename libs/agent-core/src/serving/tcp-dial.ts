/** One open TCP connection. */
export interface TcpStream {
  /**
   * What the other side sends; ends when it has ended its side, throws when the connection breaks.
   * Read it once.
   */
  readonly data: AsyncIterable<Uint8Array>;
  /** Resolves when more may be written. @throws kind `unavailable` when the connection broke. */
  write(bytes: Uint8Array): Promise<void>;
  /** Sends nothing more; what comes is still read. */
  end(): void;
  /** Closes it at once. Twice is no error. */
  destroy(): void;
}

/**
 * Opens a TCP connection on this machine.
 * @throws kind `unavailable` saying why not; also when it takes too long.
 */
export type TcpDial = (ip: string, port: number) => Promise<TcpStream>;
