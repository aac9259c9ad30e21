import {
  definedFields,
  CloudlessError,
  type Clock,
  type ContainerId,
  type StopSignal,
} from '@cloudless/base';
import { CommandNotStartedError, type ExecEvent, type ExecRequest } from '@cloudless/runtime';
import type { Frame } from '../wire/frames.js';
import {
  encodeMessage,
  EXEC_STREAMS,
  EXEC_TTY,
  parseMessage,
  type SupervisorMessage,
  type SupervisorSettings,
} from '../wire/messages.js';
import { createDisconnectedError, openSupervisorSocket } from './supervisor-connection.js';
import { WindowedInputSender } from './windowed-input-sender.js';

/**
 * Runs a command in a container over a connection of its own. The supervisor stops reading the
 * output while the caller reads slowly, and ends the command when the caller stops reading or dies.
 * @param directory - Directory of the supervisor.
 * @throws kind `unavailable` when the supervisor does not answer or its connection is lost, or the
 *   error that the supervisor returned. Ends without an error when `signal` is aborted.
 */
export async function* streamExec(
  directory: string,
  settings: SupervisorSettings,
  containerId: ContainerId,
  request: ExecRequest,
  signal: StopSignal,
  clock: Pick<Clock, 'setTimer'>,
): AsyncGenerator<ExecEvent> {
  if (signal.aborted) return;
  const { socket, parser, hello } = await openSupervisorSocket(directory, settings, false, {
    clock,
  });
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
      'env: the running supervisor is of an earlier version without variables for commands, and is replaced when its last container is removed',
    );
  }
}
