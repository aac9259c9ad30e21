import { CloudlessError, type ContainerId, type ErrorKind } from '@cloudless/base';
import type {
  CommandNotStartedError,
  ContainerEvent,
  ContainerLease,
  ContainerRequest,
  ContainerStatus,
  TerminalSize,
} from '@cloudless/runtime';
import { encodeFrame, MAX_FRAME_BYTES } from './frames.js';

/**
 * Counts incompatible changes of the messages. A client refuses a supervisor that speaks another
 * one, and says so.
 */
export const PROTOCOL = 1;

/** Input of a command that may be on its way to it or wait for it. */
export const INPUT_WINDOW_BYTES = 256 * 1024;
/** Capability of a supervisor: variables of a command's own, and windows for its input. */
export const EXEC_STREAMS = 'exec.streams';
/** Capability of a supervisor: commands with a terminal. */
export const EXEC_TTY = 'exec.tty';
/** Capability of a supervisor: containers with leases. An older one would drop them in silence. */
export const LEASES = 'disconnect.exclusive';

/**
 * What the caller configures; the newest client's settings hold for containers started from then
 * on.
 */
export interface SupervisorSettings {
  /** Ports handed out, both included. */
  readonly portRange: { readonly from: number; readonly to: number };
  /** Address at which ports are checked and reported. */
  readonly address: string;
  /** PATH of containers that set none. */
  readonly path: string;
  /** Log files kept per container, 2 or more, and the size at which a new one is begun. */
  readonly logFiles: number;
  readonly logFileBytes: number;
}

/** What a client sends. `id` is chosen by the client and comes back in the answers. */
export type ClientMessage =
  /** With `events` the supervisor tells every start and exit from here on. */
  | {
      readonly type: 'hello';
      readonly protocol: number;
      readonly settings: SupervisorSettings;
      readonly events: boolean;
    }
  | { readonly type: 'start'; readonly id: number; readonly request: ContainerRequest }
  | {
      readonly type: 'stop';
      readonly id: number;
      readonly containerId: ContainerId;
      readonly graceMs: number;
    }
  | {
      readonly type: 'renew';
      readonly id: number;
      readonly leases: readonly (readonly [ContainerId, ContainerLease | null])[];
    }
  | { readonly type: 'remove'; readonly id: number; readonly containerId: ContainerId }
  | { readonly type: 'list'; readonly id: number }
  | { readonly type: 'inspect'; readonly id: number; readonly containerId: ContainerId }
  /** Answered when the container has ended and all its output is in the log files. */
  | { readonly type: 'drained'; readonly id: number; readonly containerId: ContainerId }
  | { readonly type: 'shutdown'; readonly id: number; readonly graceMs: number }
  /**
   * Makes the connection one of this command: input and output frames follow; closing it ends the
   * command.
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
       * The client sends input only within what `window` messages grant. Only to a supervisor with
       * {@link EXEC_STREAMS}.
       */
      readonly windowed?: boolean;
      /** Added to the container's; only to a supervisor with {@link EXEC_STREAMS}. */
      readonly env?: Readonly<Record<string, string>>;
      /**
       * With a terminal of this size; `resize` frames may follow. Only to a supervisor with {@link
       * EXEC_TTY}.
       */
      readonly tty?: TerminalSize;
    };

/** What the supervisor sends. */
export type SupervisorMessage =
  | {
      readonly type: 'hello';
      readonly protocol: number;
      readonly version: string;
      readonly pid: number;
      /** What it can do beside what every supervisor of this protocol can; absent in older ones. */
      readonly capabilities?: readonly string[];
    }
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
       * Of a command whose program could not be executed: 126 or 127. Absent from older
       * supervisors.
       */
      readonly exitCode?: CommandNotStartedError['exitCode'];
    }
  | { readonly type: 'event'; readonly event: ContainerEvent }
  /** So many more bytes of input may be sent. */
  | { readonly type: 'window'; readonly id: number; readonly bytes: number };

/** @throws kind `invalid` when the message is larger than a frame may be. */
export function encodeMessage(message: ClientMessage | SupervisorMessage): Buffer {
  const payload = Buffer.from(JSON.stringify(message));
  if (payload.length > MAX_FRAME_BYTES / 2)
    throw new CloudlessError('invalid', `the ${message.type} message is larger than 1 MiB`);
  return encodeFrame('message', payload);
}

/**
 * Reads the text of a message. Both ends are of this library and the socket is private, so only the
 * outer shape is checked; the supervisor checks what it acts on.
 * @throws kind `invalid` for anything but an object with a `type`.
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
