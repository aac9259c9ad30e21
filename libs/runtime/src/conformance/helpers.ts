import {
  definedFields,
  createSeededRandom,
  randomHex,
  toContainerId,
  type ContainerId,
} from '@cloudless/base';
import type {
  ContainerRequest,
  ContainerRuntime,
  ContainerStatus,
  ExecRequest,
  LogLine,
  LogRequest,
} from '../container-runtime.js';
import type { Behaviour } from './behaviour.js';
import type { RuntimeMachine } from './harness.js';

const random = createSeededRandom(20260101);

/** Returns a container id that no other test uses. */
export function aContainerId(): ContainerId {
  return toContainerId(randomHex(random, 32));
}

/** Creates a complete request. Override the fields that a test is about. */
export function aRequest(
  machine: RuntimeMachine,
  behaviour: Behaviour,
  overrides: Partial<ContainerRequest> = {},
): ContainerRequest {
  return {
    containerId: aContainerId(),
    labels: {},
    ...definedFields({ image: machine.image }),
    command: machine.command(behaviour),
    args: [],
    env: {},
    ports: [],
    limits: {},
    ...overrides,
  };
}

/** Starts a container and returns its id. */
export async function startContainer(
  machine: RuntimeMachine,
  behaviour: Behaviour,
  overrides: Partial<ContainerRequest> = {},
): Promise<ContainerId> {
  const status = await machine.runtime.start(aRequest(machine, behaviour, overrides));
  return status.containerId;
}

/** Returns a signal that is never aborted. */
export function createNeverAborted(): AbortSignal {
  return new AbortController().signal;
}

/** Waits for the exit of a container and returns its final status. */
export async function waitForExit(
  runtime: ContainerRuntime,
  containerId: ContainerId,
): Promise<ContainerStatus> {
  const controller = new AbortController();
  const events = runtime.events(controller.signal);
  const listed = (await runtime.list()).find((status) => status.containerId === containerId);
  if (listed === undefined) throw new Error('no such container');
  if (listed.phase === 'exited') {
    controller.abort();
    return listed;
  }
  for await (const event of events) {
    if (event.kind === 'exited' && event.status.containerId === containerId) return event.status;
  }
  throw new Error('the events ended before the container did');
}

/** Reads all lines that a request selects. */
export async function readLines(
  runtime: ContainerRuntime,
  containerId: ContainerId,
  request: Partial<LogRequest> = {},
): Promise<readonly LogLine[]> {
  const lines: LogLine[] = [];
  for await (const line of runtime.logs(
    containerId,
    { follow: false, ...request },
    createNeverAborted(),
  ))
    lines.push(line);
  return lines;
}

/** Reads lines up to the line with the text `lastLine`, and leaves the stream open. */
export async function readUntil(
  lines: AsyncIterator<LogLine>,
  lastLine: string,
): Promise<readonly LogLine[]> {
  const seen: LogLine[] = [];
  for (;;) {
    const next = await lines.next();
    if (next.done === true) throw new Error(`the log ended before the line ${lastLine}`);
    seen.push(next.value);
    if (decodeLine(next.value) === lastLine) return seen;
  }
}

/** Decodes a line as UTF-8. */
export function decodeLine(line: LogLine): string {
  return new TextDecoder().decode(line.text);
}

/** Output and exit code of a command. */
export interface ExecOutcome {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | undefined;
  /** Error of the stream, if it failed. */
  readonly failure: unknown;
}

/** Runs a command until it exits, and collects its output. Does not throw. */
export async function runExec(
  runtime: ContainerRuntime,
  containerId: ContainerId,
  request: ExecRequest,
  signal: AbortSignal = createNeverAborted(),
): Promise<ExecOutcome> {
  const output = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  let exitCode: number | undefined;
  let failure: unknown;
  try {
    for await (const event of runtime.exec(containerId, request, signal)) {
      if (event.kind === 'output') output[event.stream].push(event.data);
      else exitCode = event.exitCode;
    }
  } catch (reason) {
    failure = reason;
  }
  return {
    stdout: decodeChunks(output.stdout),
    stderr: decodeChunks(output.stderr),
    exitCode,
    failure,
  };
}

function decodeChunks(chunks: readonly Uint8Array[]): string {
  const decoder = new TextDecoder();
  return chunks.map((chunk) => decoder.decode(chunk, { stream: true })).join('') + decoder.decode();
}

/** Returns the lines `line <from>` to `line <to>`, both included. */
export function createNumberedLines(from: number, to: number): readonly string[] {
  return Array.from({ length: to - from + 1 }, (_, index) => `line ${from + index}`);
}
