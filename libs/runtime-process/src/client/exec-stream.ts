import type { Socket } from 'node:net';
import { definedFields, CloudlessError, type ContainerId, type StopSignal } from '@cloudless/base';
import {
  CommandNotStartedError,
  toSingleInput,
  writeWithBackpressure,
  type ExecEvent,
  type ExecInput,
  type ExecRequest,
} from '@cloudless/runtime';
import { encodeFrame, encodeResize, type Frame } from '../wire/frames.js';
import {
  encodeMessage,
  EXEC_STREAMS,
  EXEC_TTY,
  parseMessage,
  type SupervisorMessage,
  type SupervisorSettings,
} from '../wire/messages.js';
import { createDisconnectedError, openSupervisorSocket } from './supervisor-connection.js';

/** Largest `stdin` frame: small against the window, so that the window opens in steps. */
const INPUT_CHUNK_BYTES = 64 * 1024;

/**
 * Runs a command in a container over a connection of its own. The supervisor stops reading the
 * output while the caller reads slowly, and ends the command when the caller stops reading or dies.
 * @param directory - Directory of the supervisor.
 * @throws kind `unavailable` when the connection to the supervisor is lost, or the error that the
 *   supervisor returned. Ends without an error when `signal` is aborted.
 */
export async function* streamExec(
  directory: string,
  settings: SupervisorSettings,
  containerId: ContainerId,
  request: ExecRequest,
  signal: StopSignal,
): AsyncGenerator<ExecEvent> {
  if (signal.aborted) return;
  const { socket, parser, hello } = await openSupervisorSocket(directory, settings, false);
  const capabilities = hello.capabilities ?? [];
  const isWindowed = capabilities.includes(EXEC_STREAMS);
  const input = new WindowedInputSender(socket, request, isWindowed);
  const onAbort = (): void => void socket.destroy();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    if (signal.aborted) return;
    checkCapabilities(request, capabilities);
    const { command, timeoutMs, env, tty } = request;
    socket.write(
      encodeMessage({
        ...{ type: 'exec', id: 1, containerId, command, hasInput: input.hasInput },
        ...(isWindowed ? { windowed: isWindowed } : {}),
        ...definedFields({ timeoutMs, env, tty }),
      }),
    );
    void input.send();
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      for (const frame of parser.feed(chunk)) {
        const event = toEvent(frame);
        if (event.kind === 'window') input.addWindow(event.bytes);
        else yield event;
        if (event.kind === 'exited') return;
      }
    }
    throw createDisconnectedError();
  } catch (reason) {
    if (signal.aborted) return;
    if (input.failure !== undefined) throw input.failure.reason;
    throw reason instanceof CloudlessError ? reason : createDisconnectedError();
  } finally {
    signal.removeEventListener('abort', onAbort);
    input.stop();
    socket.destroy();
  }
}

type WindowUpdate = { readonly kind: 'window'; readonly bytes: number };

function toEvent({ kind, payload }: Frame): ExecEvent | WindowUpdate {
  if (kind === 'stdout' || kind === 'stderr')
    return { kind: 'output', stream: kind, data: new Uint8Array(payload) };
  const message = parseMessage<SupervisorMessage>(payload);
  if (message.type === 'failed') {
    const { kind: errorKind, text, exitCode } = message;
    throw exitCode === undefined
      ? new CloudlessError(errorKind, text)
      : new CommandNotStartedError(exitCode, text);
  }
  if (message.type === 'done') return { kind: 'exited', exitCode: message.exitCode ?? -1 };
  if (message.type === 'window') return { kind: 'window', bytes: message.bytes };
  throw new CloudlessError('internal', `unexpected ${message.type} from the supervisor`);
}

/**
 * Refuses a terminal or variables when the supervisor, which may be older than this client, cannot
 * provide them.
 * @throws kind `unimplemented`.
 */
function checkCapabilities({ env, tty }: ExecRequest, capabilities: readonly string[]): void {
  if (tty !== undefined && !capabilities.includes(EXEC_TTY)) {
    throw new CloudlessError('unimplemented', `tty: this node lacks the capability ${EXEC_TTY}`);
  }
  if (env !== undefined && !capabilities.includes(EXEC_STREAMS)) {
    throw new CloudlessError(
      'unimplemented',
      'env: the running supervisor is of an earlier version without variables for commands; it is replaced when its last container is removed',
    );
  }
}

/** Sends the input of a command, at most as far ahead as the window of the supervisor allows. */
class WindowedInputSender {
  /** Set when the input of the caller failed. */
  failure: { readonly reason: unknown } | undefined;
  private readonly items: AsyncIterator<ExecInput> | undefined;
  /** Bytes that may still be sent; infinite for a supervisor without flow control. */
  private window: number;
  private isEndSent = false;
  private wake: (() => void) | undefined;

  constructor(
    private readonly socket: Socket,
    { stdin, input }: ExecRequest,
    isWindowed: boolean,
  ) {
    this.window = isWindowed ? 0 : Number.POSITIVE_INFINITY;
    const source = input ?? (stdin === undefined ? undefined : toSingleInput(stdin));
    this.items = source?.[Symbol.asyncIterator]();
  }

  /** False when the request has no input. */
  get hasInput(): boolean {
    return this.items !== undefined;
  }

  /** Sends all input. Sets `failure` and closes the socket when the input of the caller fails. */
  async send(): Promise<void> {
    const { items, socket } = this;
    if (items === undefined) return;
    try {
      for (;;) {
        await this.waitForWindow();
        const item = await items.next();
        if (socket.destroyed) return;
        if (item.done === true) break;
        await this.sendItem(item.value);
      }
      await this.sendEnd();
    } catch (reason) {
      this.failure = { reason };
      socket.destroy();
    }
  }

  /** Allows `bytes` more bytes to be sent. */
  addWindow(bytes: number): void {
    this.window += bytes;
    this.wake?.();
  }

  /** Stops sending, because the command or the connection has ended. */
  stop(): void {
    this.wake?.();
    void this.items?.return?.().catch(() => undefined);
  }

  private async sendItem(item: ExecInput): Promise<void> {
    if (item.kind === 'resize') return writeWithBackpressure(this.socket, encodeResize(item));
    if (item.kind === 'end') return this.sendEnd();
    for (let start = 0; start < item.data.length; start += INPUT_CHUNK_BYTES) {
      await this.waitForWindow();
      const chunk = item.data.subarray(start, start + INPUT_CHUNK_BYTES);
      this.window -= chunk.length;
      await writeWithBackpressure(this.socket, encodeFrame('stdin', chunk));
    }
  }

  /** Sends the end of the input at most once: a terminal would take a second end as Ctrl-D. */
  private async sendEnd(): Promise<void> {
    if (this.isEndSent) return;
    this.isEndSent = true;
    await writeWithBackpressure(this.socket, encodeFrame('stdinEnd'));
  }

  /** Resolves when the window is open or the connection has closed. */
  private async waitForWindow(): Promise<void> {
    while (this.window <= 0 && !this.socket.destroyed)
      await new Promise<void>((resolve) => (this.wake = resolve));
  }
}
