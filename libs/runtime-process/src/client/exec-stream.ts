import type { Socket } from 'node:net';
import { CloudlessError, type ContainerId, type StopSignal } from '@cloudless/base';
import type { ExecEvent, ExecRequest } from '@cloudless/runtime';
import { encodeFrame, type Frame } from '../wire/frames.js';
import { encodeMessage, parseMessage, type SupervisorMessage, type SupervisorSettings } from '../wire/messages.js';
import { gone, greetSupervisor } from './connection.js';

const INPUT_CHUNK_BYTES = 64 * 1024;

/**
 * Runs a command over a connection of its own. A reader that does not take what comes makes the command wait; one that
 * leaves, or dies, ends it.
 */
export async function* execOver(
  directory: string,
  settings: SupervisorSettings,
  containerId: ContainerId,
  request: ExecRequest,
  signal: StopSignal,
): AsyncGenerator<ExecEvent> {
  if (signal.aborted) return;
  const { socket, parser } = await greetSupervisor(directory, settings, false);
  const onAbort = (): void => void socket.destroy();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    if (signal.aborted) return;
    const { command, timeoutMs, stdin } = request;
    const hasInput = stdin !== undefined;
    socket.write(
      encodeMessage({ type: 'exec', id: 1, containerId, command, hasInput, ...(timeoutMs === undefined ? {} : { timeoutMs }) }),
    );
    if (stdin !== undefined) void sendInput(socket, stdin);
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      for (const frame of parser.feed(chunk)) {
        const event = toEvent(frame);
        yield event;
        if (event.kind === 'exited') return;
      }
    }
    throw gone();
  } catch (reason) {
    if (signal.aborted) return;
    throw reason instanceof CloudlessError ? reason : gone();
  } finally {
    signal.removeEventListener('abort', onAbort);
    socket.destroy();
  }
}

function toEvent({ kind, payload }: Frame): ExecEvent {
  if (kind === 'stdout' || kind === 'stderr') return { kind: 'output', stream: kind, data: new Uint8Array(payload) };
  const message = parseMessage<SupervisorMessage>(payload);
  if (message.type === 'failed') throw new CloudlessError(message.kind, message.text);
  if (message.type === 'done') return { kind: 'exited', exitCode: message.exitCode ?? -1 };
  throw new CloudlessError('internal', `unexpected ${message.type} from the supervisor`);
}

async function sendInput(socket: Socket, stdin: Uint8Array): Promise<void> {
  for (let start = 0; start < stdin.length; start += INPUT_CHUNK_BYTES) {
    if (socket.destroyed) return;
    const taken = socket.write(encodeFrame('stdin', stdin.subarray(start, start + INPUT_CHUNK_BYTES)));
    if (!taken) await new Promise<void>((resolve) => void socket.once('drain', resolve).once('close', resolve));
  }
  if (!socket.destroyed) socket.write(encodeFrame('stdinEnd'));
}
