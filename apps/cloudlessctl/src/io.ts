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
   * `pipe`: a pipe or a file, which ends. `terminal`: a person. `other`: a socket or a device,
   * which may never end and is read only when asked for.
   */
  readonly kind: 'pipe' | 'terminal' | 'other';
  /** All of it; stops with `undefined` as soon as it is longer than `maxBytes`. */
  readAll(maxBytes: number): Promise<Uint8Array | undefined>;
  /** What comes, until its end; read once. */
  chunks(): AsyncIterable<Uint8Array>;
}

/** The terminal a person sits at. */
export interface Terminal {
  /** Now, in characters. */
  readonly size: { readonly columns: number; readonly rows: number };
  /** @returns Ends the subscription. */
  onResize(listener: () => void): () => void;
  /** Every key comes as it is pressed, Ctrl-C too. @returns Makes it as it was. */
  makeRaw(): () => void;
}

/** A TCP connection that somebody on this machine has opened to us. */
export interface LocalConnection {
  /** What comes, until the other side ends; throws when the connection breaks. Read it once. */
  readonly data: AsyncIterable<Uint8Array>;
  /** Resolves when more may be written. @throws when the connection broke. */
  write(data: Uint8Array): Promise<void>;
  /** Sends nothing more. */
  end(): void;
  /** Closes it so that the other side sees a fault. */
  reset(): void;
  /** Aborted when it is closed. */
  readonly closed: AbortSignal;
}

/** Where connections are taken. */
export interface LocalListener {
  readonly port: number;
  close(): void;
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
  /**
   * Connects to `http://host:port` or `https://host:port`; nothing is sent before the first call.
   */
  connect(server: string): Connection;
  /** Where input and output are one terminal. */
  readonly terminal?: Terminal | undefined;
  /**
   * Takes TCP connections on 127.0.0.1; 0 picks a port. @throws an error with `code: 'EADDRINUSE'`
   * when it is taken.
   */
  listen(port: number, onConnection: (connection: LocalConnection) => void): Promise<LocalListener>;
}

/** The reader of our output has gone away, as `head` does. Not an error for the user. */
export class BrokenPipeError extends Error {
  override readonly name = 'BrokenPipeError';
  constructor() {
    super('nobody reads the output any more');
  }
}
