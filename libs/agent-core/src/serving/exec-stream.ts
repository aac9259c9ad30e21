import { create } from '@bufbuild/protobuf';
import { durationMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError, InvalidInputError, type Clock } from '@cloudless/base';
import {
  ExecResponseSchema,
  ExecStartedSchema,
  type ExecRequest,
  type ExecResponse,
  type ExecStart,
} from '@cloudless/api';
import type { ContainerRuntime, ContainerStatus, ExecEvent, ExecInput } from '@cloudless/runtime';
import { withKeepAlive } from './keep-alive.js';

export interface ExecDeps {
  readonly nodeId: string;
  readonly runtime: ContainerRuntime;
  readonly clock: Clock;
  /** Interval of keep-alive messages while the command writes nothing, milliseconds. */
  readonly keepAliveMs: number;
}

/**
 * Runs a command in a container, with streamed input and output. Ends the command when `signal` is
 * aborted.
 * @param requests - The messages after the first.
 * @throws kind `invalid` for an empty command or a message that is not allowed, `unimplemented`
 *   when the runtime has no terminals, `deadline` after the timeout, `unavailable` when the command
 *   was aborted.
 */
export async function* runExec(
  start: ExecStart,
  target: { readonly containerId: ContainerStatus['containerId']; readonly replicaId: string },
  requests: AsyncIterable<ExecRequest>,
  { nodeId, runtime, clock, keepAliveMs }: ExecDeps,
  signal: AbortSignal,
): AsyncGenerator<ExecResponse> {
  const { command, tty, timeout, env } = start;
  if (command.length === 0)
    throw new InvalidInputError([{ field: 'start.command', message: 'must not be empty' }]);
  if (tty !== undefined && !runtime.capabilities().includes('exec.tty')) {
    throw new CloudlessError('unimplemented', `tty: node ${nodeId} lacks the capability exec.tty`);
  }
  yield create(ExecResponseSchema, {
    response: { case: 'started', value: create(ExecStartedSchema, { ...target, nodeId }) },
  });
  const request = {
    command,
    input: toInput(requests, tty !== undefined),
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(tty === undefined ? {} : { tty: { columns: tty.columns, rows: tty.rows } }),
    ...(timeout === undefined ? {} : { timeoutMs: durationMs(timeout) }),
  };
  const responses = toResponses(runtime.exec(target.containerId, request, signal));
  yield* withKeepAlive(responses, keepAliveMs, clock, () => create(ExecResponseSchema));
}

async function* toResponses(events: AsyncIterable<ExecEvent>): AsyncGenerator<ExecResponse> {
  for await (const event of events) {
    if (event.kind === 'exited') {
      yield create(ExecResponseSchema, {
        response: { case: 'exit', value: { exitCode: event.exitCode } },
      });
      return;
    }
    yield create(ExecResponseSchema, {
      response: { case: event.stream, value: new Uint8Array(event.data) },
    });
  }
  throw new CloudlessError('unavailable', 'the command was aborted before it exited');
}

/**
 * Converts the messages after the first.
 * @throws kind `invalid` for a second start message, and for a resize without a terminal.
 */
async function* toInput(
  requests: AsyncIterable<ExecRequest>,
  hasTerminal: boolean,
): AsyncGenerator<ExecInput> {
  for await (const { request } of requests) {
    switch (request.case) {
      case 'stdin':
        yield { kind: 'stdin', data: request.value };
        break;
      case 'stdinEnd':
        yield { kind: 'end' };
        break;
      case 'resize':
        if (!hasTerminal)
          throw new InvalidInputError([
            { field: 'resize', message: 'the command has no terminal' },
          ]);
        yield { kind: 'resize', columns: request.value.columns, rows: request.value.rows };
        break;
      case 'start':
        throw new InvalidInputError([
          { field: 'start', message: 'must come once, as the first message' },
        ]);
      case undefined: // keep-alive message
        break;
    }
  }
}
