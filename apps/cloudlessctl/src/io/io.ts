import type { Transport } from '@connectrpc/connect';
import type { Clock } from '@cloudless/base';

/** Standard output or standard error. */
export interface CliOutput {
  readonly isTTY: boolean;
  /** Width in characters; 80 when unknown. */
  readonly columns: number;
  /**
   * Writes data. Resolves when more data can be written.
   * @throws {@link BrokenPipeError} when the reader has closed the pipe.
   */
  write(data: string | Uint8Array): Promise<void>;
}

/** Standard input. */
export interface CliInput {
  /**
   * `pipe`: a pipe or a file, which has an end. `terminal`: an interactive terminal. `other`: a
   * socket or a device, which may never end and is read only on request.
   */
  readonly kind: 'pipe' | 'terminal' | 'other';
  /**
   * Reads to the end.
   * @returns The whole input; undefined when the input is longer than `maxBytes`.
   */
  readAll(maxBytes: number): Promise<Uint8Array | undefined>;
  /** Yields the chunks as they arrive, until the end of the input. Must be called only once. */
  readChunks(): AsyncIterable<Uint8Array>;
}

/** The local terminal. */
export interface Terminal {
  /** Current size in characters. */
  readonly size: { readonly columns: number; readonly rows: number };
  /**
   * Calls `listener` after each change of the size.
   * @returns A function that removes the listener.
   */
  onResize(listener: () => void): () => void;
  /**
   * Switches the terminal to raw mode: each key, also Ctrl-C, becomes input at once.
   * @returns A function that restores the normal mode.
   */
  makeRaw(): () => void;
}

/** A TCP connection from a local client. */
export interface LocalConnection {
  /**
   * The received data, until the client ends its side. Throws when the connection breaks. Must be
   * iterated only once.
   */
  readonly received: AsyncIterable<Uint8Array>;
  /**
   * Sends data. Resolves when more data can be sent.
   * @throws An error of Node when the connection is broken.
   */
  write(data: Uint8Array): Promise<void>;
  /** Ends the sending side. The client may still send. */
  endSending(): void;
  /** Closes the connection with a TCP reset. */
  resetConnection(): void;
  /** Aborted when the connection is closed. */
  readonly closed: AbortSignal;
}

/** A listening local port. */
export interface LocalListener {
  readonly port: number;
  /** Stops listening and closes all connections. */
  close(): void;
}

/** File access of commands. */
export interface Files {
  /**
   * Reads a whole file.
   * @throws An error with `code: 'ENOENT'` when the file does not exist.
   */
  read(path: string): Promise<Uint8Array>;
  /**
   * Returns the names in a directory; undefined when `path` is a file.
   * @throws An error with `code: 'ENOENT'` when `path` does not exist.
   */
  list(path: string): Promise<readonly string[] | undefined>;
  /** Replaces the file atomically and creates its directory when needed. */
  write(path: string, text: string): Promise<void>;
  /** Returns true when a file or a directory of this name exists. */
  exists(path: string): Promise<boolean>;
  /**
   * Reads a file with a secret.
   * @throws {@link OpenSecretError} when others than the owner of the file can read the file, and an
   *   error with `code: 'ENOENT'` when the file does not exist.
   */
  readSecret(path: string): Promise<Uint8Array>;
  /**
   * Creates a file with mode 0600. Its directory must exist.
   * @throws An error with `code: 'EEXIST'` when the file exists.
   */
  createSecret(path: string, text: string): Promise<void>;
  /**
   * Replaces a file with mode 0600 atomically, after the new content is on the disk. Creates its
   * directory with mode 0700 when needed.
   */
  replaceSecret(path: string, content: string | Uint8Array): Promise<void>;
  /**
   * Replaces several files as {@link replaceSecret} does. Changes no file before the new contents of
   * all are on the disk.
   * @param contents - Content of each file by path.
   */
  replaceSecrets(contents: ReadonlyMap<string, Uint8Array>): Promise<void>;
  /**
   * Creates a lock file that other processes respect. A lock file that is older than
   * `staleAfterMs` was left by a process that died, and is replaced.
   * @returns A function that removes the lock file; undefined when another process has the lock.
   */
  lock(path: string, staleAfterMs: number): Promise<(() => Promise<void>) | undefined>;
  /** Removes a file or a directory with its files, if there is one. */
  remove(path: string): Promise<void>;
}

/** Others than the owner can read a file with a secret. */
export class OpenSecretError extends Error {
  override readonly name = 'OpenSecretError';
  /** @param mode - Permission bits of the file. */
  constructor(path: string, mode: number) {
    super(
      `${path} has mode ${mode.toString(8).padStart(4, '0')}, so others can read the secret; run: chmod 600 ${path}`,
    );
  }
}

/** A connection to a coordinator. */
export interface CoordinatorConnection {
  readonly transport: Transport;
  /**
   * Opens the connection unless it is open. Absent: the first call opens it.
   * @throws when the coordinator is not reached or not trusted, or `signal` is aborted.
   */
  prepare?(signal: AbortSignal): Promise<void>;
  /** Cancels all calls and closes the connection. */
  close(): void;
}

/** What TLS needs of a client with a certificate. */
export interface ClientIdentity {
  /** Private key in PEM. */
  readonly keyPem: string;
  /** Certificate of the client and its issuers in PEM. */
  readonly chainPem: string;
  /** The root certificates to trust in PEM. */
  readonly bundlePem: string;
  /** SPIFFE IDs of the coordinators of the cluster. */
  readonly serverIds: readonly string[];
  readonly trustDomain: string;
}

/** How a client authenticates itself and the server of a connection with TLS. */
export type ServerAccess =
  /** With a client certificate. Each new connection uses the current identity. */
  | {
      readonly kind: 'certificate';
      getIdentity(): ClientIdentity;
      /**
       * Counts how often the identity was replaced by that of another process. Later calls then use
       * a new connection. Default: 0.
       */
      countReloads?(): number;
      /** Called when the coordinator asks for a renewal, because its authority is rotated. */
      onRenewalRequested?(): void;
    }
  /**
   * With a bearer token, which is sent when the root certificate of the server has one of the
   * SHA-256 digests (64 hex digits).
   */
  | {
      readonly kind: 'token';
      readonly text: string;
      readonly caSha256s: readonly string[];
      /** File that the digests are from. Absent: the token names its root itself. */
      readonly caFile?: string;
    };

/** The environment of a command: its access to everything outside of the process. */
export interface CliIo {
  readonly stdout: CliOutput;
  readonly stderr: CliOutput;
  readonly stdin: CliInput;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly files: Files;
  /** Name of this machine. */
  readonly hostName: string;
  readonly clock: Clock;
  /**
   * Returns the minutes that local time is ahead of UTC at a time in milliseconds since the epoch.
   */
  getUtcOffset(timeMs: number): number;
  /** Aborted on Ctrl-C and SIGTERM. */
  readonly signal: AbortSignal;
  /**
   * Creates a connection to `http://host:port` or `https://host:port`, or to whichever coordinator
   * answers of several such addresses, separated by commas. Nothing is sent before the first call.
   * @param access - Required for https.
   */
  connect(server: string, access?: ServerAccess): CoordinatorConnection;
  /** Returns true when the server at an address answers a TLS handshake within 2 s. */
  detectTls(server: string): Promise<boolean>;
  /** Present when standard input and output are a terminal. */
  readonly terminal?: Terminal | undefined;
  /**
   * Accepts TCP connections on 127.0.0.1.
   * @param port - 0: the system chooses a free port.
   * @throws An error with `code: 'EADDRINUSE'` when the port is in use.
   */
  listen(port: number, onConnection: (connection: LocalConnection) => void): Promise<LocalListener>;
}

/** The reader of the output has closed the pipe, as `head` does. Not an error for the user. */
export class BrokenPipeError extends Error {
  override readonly name = 'BrokenPipeError';
  constructor() {
    super('the reader of the output has closed it');
  }
}
