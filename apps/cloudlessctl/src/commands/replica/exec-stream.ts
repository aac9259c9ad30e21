import { create } from '@bufbuild/protobuf';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { ExecRequestSchema } from '@cloudless/api';
import type { ExecRequest, ExecResponse } from '@cloudless/api';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { Terminal } from '../../io/io.js';
import { toTargetFields } from '../../names.js';
import type { ReplicaTarget } from '../../names.js';
import { RequestQueue } from '../../call/request-queue.js';
import type { CliSession } from '../../call/cli-session.js';

/**
 * Bytes of standard input in one message. The API allows 256 KiB in the `stdin` field; smaller
 * messages reach the command earlier.
 */
const CHUNK_BYTES = 64 * 1024;

/** Options of {@link execStream}. */
export interface ExecStreamOptions {
  readonly target: ReplicaTarget;
  readonly command: readonly string[];
  /** True forwards standard input to the command. */
  readonly stdin: boolean;
  /** True allocates a terminal of the same size as the local terminal. */
  readonly tty: boolean;
}

/**
 * Runs a command and streams its input and output.
 * @returns The lowest 8 bits of the exit code of the command.
 * @throws {@link CliFailure} when the options cannot be combined, or when the connection ends
 *   before the command.
 */
export async function execStream(session: CliSession, options: ExecStreamOptions): Promise<number> {
  const { io } = session;
  if (session.isStructured)
    throw createUsageFailure(
      '-o json and yaml cannot be used with -i or -t: they print one result at the end',
    );
  const terminal = options.tty ? io.terminal : undefined;
  if (options.tty && terminal === undefined)
    throw createUsageFailure('-t requires a terminal as standard input and output');
  const requests = new RequestQueue<ExecRequest>();
  void requests.put(createStartRequest(session, options, terminal));
  const abortCall = new AbortController();
  const removeResizeListener = terminal?.onResize(
    () => void requests.put(createRequest({ case: 'resize', value: terminal.size })),
  );
  const restore = options.stdin ? terminal?.makeRaw() : undefined;
  try {
    const signal = AbortSignal.any([io.signal, abortCall.signal]);
    const responses = session.client.exec(requests.read(), session.getStreamOptions(signal));
    // When standard input fails, for example because the terminal was closed, the call is
    // cancelled, which ends the command.
    if (options.stdin)
      sendInput(session, requests, abortCall.signal).catch((reason: unknown) =>
        abortCall.abort(reason),
      );
    return await printResponses(session, responses);
  } finally {
    restore?.();
    removeResizeListener?.();
    requests.close();
    abortCall.abort();
  }
}

function createStartRequest(
  session: CliSession,
  { target, command, tty }: ExecStreamOptions,
  terminal: Terminal | undefined,
): ExecRequest {
  const { settings, io } = session;
  const term = io.env['TERM'];
  return createRequest({
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

function createRequest(
  value: NonNullable<MessageInitShape<typeof ExecRequestSchema>['request']>,
): ExecRequest {
  return create(ExecRequestSchema, { request: value });
}

/** Sends standard input in chunks. Waits until a chunk was sent before it sends the next chunk. */
async function sendInput(
  { io }: CliSession,
  requests: RequestQueue<ExecRequest>,
  signal: AbortSignal,
): Promise<void> {
  for await (const chunk of io.stdin.readChunks()) {
    for (let start = 0; start < chunk.length; start += CHUNK_BYTES) {
      await requests.put(
        createRequest({
          case: 'stdin',
          value: new Uint8Array(chunk.subarray(start, start + CHUNK_BYTES)),
        }),
      );
    }
    if (signal.aborted) return;
  }
  await requests.put(createRequest({ case: 'stdinEnd', value: {} }));
}

async function printResponses(
  { io }: CliSession,
  responses: AsyncIterable<ExecResponse>,
): Promise<number> {
  for await (const { response } of responses) {
    if (response.case === 'stdout') await io.stdout.write(response.value);
    else if (response.case === 'stderr') await io.stderr.write(response.value);
    else if (response.case === 'exit') return response.value.exitCode & 0xff;
  }
  throw new CliFailure(ExitCode.unavailable, 'the connection ended before the command did');
}
