import { create } from '@bufbuild/protobuf';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { ExecRequestSchema } from '@cloudless/api';
import type { ExecRequest, ExecResponse } from '@cloudless/api';
import { CliFailure, ExitCode, usageFailure } from '../failure.js';
import type { Terminal } from '../io.js';
import { toTargetFields } from '../names.js';
import type { ReplicaTarget } from '../names.js';
import { Outbox } from '../outbox.js';
import type { Session } from '../session.js';

/** What the coordinator takes in one message is 256 KiB. */
const CHUNK_BYTES = 64 * 1024;

/** How a command is run whose input comes while it runs. */
export interface ExecStreamOptions {
  readonly target: ReplicaTarget;
  readonly command: readonly string[];
  /** Forwards the input. */
  readonly stdin: boolean;
  /** Gives the command a terminal of the size of ours. */
  readonly tty: boolean;
}

/** Runs a command with input as it comes. @returns its exit code. */
export async function execStream(session: Session, options: ExecStreamOptions): Promise<number> {
  const { io } = session;
  if (session.structured)
    throw usageFailure('-o json and yaml show a result when all is done: leave out -i and -t');
  const terminal = options.tty ? io.terminal : undefined;
  if (options.tty && terminal === undefined)
    throw usageFailure('-t needs a terminal as input and output: leave it out here');
  const requests = new Outbox<ExecRequest>();
  void requests.put(startOf(session, options, terminal));
  const ending = new AbortController();
  const unlisten = terminal?.onResize(
    () => void requests.put(request({ case: 'resize', value: terminal.size })),
  );
  const restore = options.stdin ? terminal?.makeRaw() : undefined;
  try {
    const signal = AbortSignal.any([io.signal, ending.signal]);
    const responses = session.client.exec(requests.read(), session.streamOptions(signal));
    // Whose terminal has hung up cannot go on: the command ends as with its caller.
    if (options.stdin)
      sendInput(session, requests, ending.signal).catch((reason: unknown) => ending.abort(reason));
    return await show(session, responses);
  } finally {
    restore?.();
    unlisten?.();
    requests.close();
    ending.abort();
  }
}

function startOf(
  session: Session,
  { target, command, tty }: ExecStreamOptions,
  terminal: Terminal | undefined,
): ExecRequest {
  const { settings, io } = session;
  const term = io.env['TERM'];
  return request({
    case: 'start',
    value: {
      ...toTargetFields(target),
      command: [...command],
      ...(terminal === undefined ? {} : { tty: terminal.size }),
      ...(tty && term !== undefined && term !== '' ? { env: { TERM: term } } : {}),
      ...(settings.timeoutMs === undefined ? {} : { timeout: durationFromMs(settings.timeoutMs) }),
    },
  });
}

function request(
  value: NonNullable<MessageInitShape<typeof ExecRequestSchema>['request']>,
): ExecRequest {
  return create(ExecRequestSchema, { request: value });
}

/** Sends the input as fast as it is taken. */
async function sendInput(
  { io }: Session,
  requests: Outbox<ExecRequest>,
  signal: AbortSignal,
): Promise<void> {
  for await (const chunk of io.stdin.chunks()) {
    for (let start = 0; start < chunk.length; start += CHUNK_BYTES) {
      await requests.put(
        request({
          case: 'stdin',
          value: new Uint8Array(chunk.subarray(start, start + CHUNK_BYTES)),
        }),
      );
    }
    if (signal.aborted) return;
  }
  await requests.put(request({ case: 'stdinEnd', value: {} }));
}

async function show({ io }: Session, responses: AsyncIterable<ExecResponse>): Promise<number> {
  for await (const { response } of responses) {
    if (response.case === 'stdout') await io.stdout.write(response.value);
    else if (response.case === 'stderr') await io.stderr.write(response.value);
    else if (response.case === 'exit') return response.value.exitCode & 0xff;
  }
  throw new CliFailure(ExitCode.unavailable, 'the call ended before the command did');
}
