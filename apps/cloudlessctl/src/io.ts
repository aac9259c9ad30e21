import type { Transport } from '@connectrpc/connect';
import type { Clock } from '@cloudless/base';

/** Where text goes. */
export interface OutputStream {
  readonly isTTY: boolean;
  /** Width in characters; 80 when unknown. */
  readonly columns: number;
  /**
   * Resolves once more may be written.
   * @throws {@link BrokenPipeError} when the reader is gone.
   */
  write(data: string | Uint8Array): Promise<void>;
}

/** What is piped into the command. */
export interface InputStream {
  /**
   * `pipe`: a pipe or a file, which ends. `terminal`: a person. `other`: a socket or a device, which may never end and is read
   * only when asked for.
   */
  readonly kind: 'pipe' | 'terminal' | 'other';
  /** All of it; stops with `undefined` as soon as it is longer than `maxBytes`. */
  readAll(maxBytes: number): Promise<Uint8Array | undefined>;
}

/** The files the command line reads and writes. */
export interface Files {
  /** @throws an error with `code: 'ENOENT'` when there is no such file. */
  read(path: string): Promise<Uint8Array>;
  /** Names in a directory, or `undefined` when `path` is not one. */
  list(path: string): Promise<readonly string[] | undefined>;
  /** Replaces the whole file at once; makes its directory. */
  write(path: string, text: string): Promise<void>;
}

/** An open way to a coordinator. */
export interface Connection {
  readonly transport: Transport;
  /** Ends every call and frees what keeps the process alive. */
  close(): void;
}

/** Everything a command touches outside itself. */
export interface CliIo {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly stdin: InputStream;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly files: Files;
  readonly clock: Clock;
  /** Aborted on Ctrl-C. */
  readonly signal: AbortSignal;
  /** Connects to `http://host:port` or `https://host:port`; nothing is sent before the first call. */
  connect(server: string): Connection;
}

/** The reader of our output has gone away, as `head` does. Not an error for the user. */
export class BrokenPipeError extends Error {
  override readonly name = 'BrokenPipeError';
  constructor() {
    super('nobody reads the output any more');
  }
}
