import { CloudlessError, type ContainerId, type ErrorKind } from '@cloudless/base';
import type {
  CommandNotStartedError,
  ContainerEvent,
  ContainerLease,
  ContainerRequest,
  ContainerSignal,
  ContainerStatus,
  TerminalSize,
} from '@cloudless/runtime';
import { encodeFrame, MAX_FRAME_BYTES } from './frames.js';

/**
 * Version of the protocol, raised by incompatible changes of the messages. A client refuses a
 * supervisor that speaks another version.
 */
export const PROTOCOL = 1;

/** Largest number of input bytes that may be in flight to a command or wait for it. */
export const INPUT_WINDOW_BYTES = 256 * 1024;
/**
 * Capability of a supervisor: commands may have variables of their own, and flow control for their
 * input.
 */
export const EXEC_STREAMS = 'exec.streams';
/** Capability of a supervisor: commands with a terminal. */
export const EXEC_TTY = 'exec.tty';
/**
 * Capability of a supervisor: confidential variables that it writes to no file, and signals to main
 * processes.
 */
export const SECRETS = 'files.signal';
/**
 * Capability of a supervisor: the supervisor accepts the DNS settings of a process, whether or not
 * the machine can apply them (`process.dns`). A supervisor without this capability refuses a request
 * with `network`.
 */
export const ACCEPTS_DNS_SETTINGS = 'dns.settings';
/** Capability of a supervisor: containers with leases. A supervisor without it ignores leases. */
export const LEASES = 'disconnect.exclusive';

/**
 * Configuration that a client sends. The settings of the newest client apply to containers that are
 * started afterwards.
 */
export interface SupervisorSettings {
  /** Ports that containers get, both ends included. */
  readonly portRange: { readonly from: number; readonly to: number };
  /** Address on which the supervisor checks that a port is free, and which endpoints report. */
  readonly address: string;
  /** PATH of containers whose request sets no PATH. */
  readonly path: string;
  /**
   * Number of log files that are kept per container, at least 2, and the size in bytes at which the
   * log is rotated.
   */
  readonly logFiles: number;
  readonly logFileBytes: number;
}

/** Log settings of a client that sets none, and of containers that are adopted. */
export const DEFAULT_LOG_SETTINGS = {
  logFiles: 4,
  logFileBytes: 4 * 1024 * 1024,
} as const satisfies Partial<SupervisorSettings>;

/** Send time of a message with leases, from which the leases count. */
export interface SentAt {
  /**
   * Time at which the client sent the message, in milliseconds since the machine booted. The
   * supervisor deducts the time since then from the leases, because the message may have waited in
   * the socket. Absent from clients of earlier versions; ignored by supervisors of earlier
   * versions, whose leases count from the time at which they read the message.
   */
  readonly sentAtUptimeMs?: number;
}

/** Message of a client. The client chooses `id`, and the responses repeat it. */
export type ClientMessage =
  /** First message. With `events`, the supervisor sends every start and exit from now on. */
  | {
      readonly type: 'hello';
      readonly protocol: number;
      readonly settings: SupervisorSettings;
      readonly events: boolean;
    }
  | ({
      readonly type: 'start';
      readonly id: number;
      readonly request: ContainerRequest;
    } & SentAt)
  | {
      readonly type: 'stop';
      readonly id: number;
      readonly containerId: ContainerId;
      readonly graceMs: number;
    }
  /** Sends a signal to the main process. Requires a supervisor with {@link SECRETS}. */
  | {
      readonly type: 'signal';
      readonly id: number;
      readonly containerId: ContainerId;
      readonly signal: ContainerSignal;
    }
  /** Renews leases; null removes the lease of a container. */
  | ({
      readonly type: 'renew';
      readonly id: number;
      readonly leases: readonly (readonly [ContainerId, ContainerLease | null])[];
    } & SentAt)
  | { readonly type: 'remove'; readonly id: number; readonly containerId: ContainerId }
  | { readonly type: 'list'; readonly id: number }
  | { readonly type: 'inspect'; readonly id: number; readonly containerId: ContainerId }
  /** The response follows when the container has ended and all its output is in the log files. */
  | { readonly type: 'drained'; readonly id: number; readonly containerId: ContainerId }
  /** Answered at once. Supervisors of earlier versions answer with `failed`. */
  | { readonly type: 'ping'; readonly id: number }
  | { readonly type: 'shutdown'; readonly id: number; readonly graceMs: number }
  /**
   * Dedicates the connection to this command: input and output frames follow. Closing the
   * connection ends the command.
   */
  | {
      readonly type: 'exec';
      readonly id: number;
      readonly containerId: ContainerId;
      readonly command: readonly string[];
      readonly timeoutMs?: number;
      /** `stdin` frames and one `stdinEnd` follow. */
      readonly hasInput: boolean;
      /**
       * The client sends only as much input as `window` messages allow. Requires a supervisor with
       * {@link EXEC_STREAMS}.
       */
      readonly windowed?: boolean;
      /**
       * Variables that are added to those of the container. Requires a supervisor with {@link
       * EXEC_STREAMS}.
       */
      readonly env?: Readonly<Record<string, string>>;
      /**
       * The command gets a terminal of this size; `resize` frames may follow. Requires a supervisor
       * with {@link EXEC_TTY}.
       */
      readonly tty?: TerminalSize;
    };

/** Message of the supervisor. */
export type SupervisorMessage =
  | {
      readonly type: 'hello';
      readonly protocol: number;
      readonly version: string;
      readonly pid: number;
      /** Optional features of this supervisor; absent in supervisors of earlier versions. */
      readonly capabilities?: readonly string[];
    }
  /** One container in the response to `list`; `done` follows. */
  | { readonly type: 'item'; readonly id: number; readonly status: ContainerStatus }
  | {
      readonly type: 'done';
      readonly id: number;
      readonly status?: ContainerStatus;
      readonly exitCode?: number;
    }
  | {
      readonly type: 'failed';
      readonly id: number;
      readonly kind: ErrorKind;
      readonly text: string;
      /**
       * 126 or 127 when the program of a command could not be executed. Absent from supervisors of
       * earlier versions.
       */
      readonly exitCode?: CommandNotStartedError['exitCode'];
    }
  | { readonly type: 'event'; readonly event: ContainerEvent }
  /** Allows the client to send this many more bytes of input. */
  | { readonly type: 'window'; readonly id: number; readonly bytes: number };

/**
 * Encodes a message as a frame.
 * @throws kind `invalid` when the message is larger than 1 MiB.
 */
export function encodeMessage(message: ClientMessage | SupervisorMessage): Buffer {
  const payload = Buffer.from(JSON.stringify(message));
  if (payload.length > MAX_FRAME_BYTES / 2)
    throw new CloudlessError('invalid', `the ${message.type} message is larger than 1 MiB`);
  return encodeFrame('message', payload);
}

/**
 * Parses a message. Only the outer shape is checked, because both peers belong to this library and
 * the socket is private; the supervisor validates the fields that it uses.
 * @throws kind `invalid` unless the payload is a JSON object with a `type`.
 */
export function parseMessage<Message extends ClientMessage | SupervisorMessage>(
  payload: Buffer,
): Message {
  let value: unknown;
  try {
    value = JSON.parse(payload.toString());
  } catch (cause) {
    throw new CloudlessError('invalid', 'malformed message', { cause });
  }
  if (
    typeof value !== 'object' ||
    value === null ||
    !('type' in value) ||
    typeof value.type !== 'string'
  ) {
    throw new CloudlessError('invalid', 'malformed message');
  }
  return value as Message;
}
