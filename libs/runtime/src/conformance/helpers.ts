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

/** A container id that no other test uses. */
export function aContainerId(): ContainerId {
  return toContainerId(randomHex(random, 32));
}

/** Complete request; override the fields that a test is about. */
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

/** A signal that is never aborted. */
export function createNeverAborted(): AbortSignal {
  return new AbortController().signal;
}

/** Waits for the exit of a container. @returns Its status. */
export async function waitForExit(
  runtime: ContainerRuntime,
  containerId: ContainerId,
): Promise<ContainerStatus> {
  const leave = new AbortController();
  const events = runtime.events(leave.signal);
  const now = (await runtime.list()).find((status) => status.containerId === containerId);
  if (now === undefined) throw new Error('no such container');
  if (now.phase === 'exited') {
    leave.abort();
    return now;
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

/** Reads lines up to the one with this text; leaves the stream open. */
export async function readUntil(
  lines: AsyncIterator<LogLine>,
  wanted: string,
): Promise<readonly LogLine[]> {
  const seen: LogLine[] = [];
  for (;;) {
    const next = await lines.next();
    if (next.done === true) throw new Error(`the log ended before the line ${wanted}`);
    seen.push(next.value);
    if (decodeLine(next.value) === wanted) return seen;
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

/** Runs a command until it exits. */
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

/** The lines `line <from>` to `line <to>`. */
export function createNumberedLines(from: number, to: number): readonly string[] {
  return Array.from({ length: to - from + 1 }, (_, index) => `line ${from + index}`);
}
