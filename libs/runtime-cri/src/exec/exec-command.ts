import type { Duplex } from 'node:stream';
import {
  CloudlessError,
  errorFields,
  errorKindOf,
  errorMessageOf,
  sleep,
  type Clock,
  type Log,
  type StopSignal,
} from '@cloudless/base';
import { writeInTurn, type ExecEvent, type ExecRequest } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';
import { pidNamespaceOf, readProcess, type HostProcess } from '../system/host-processes.js';
import { commandLineFor } from './command-line.js';
import type { CommandRecords } from './command-records.js';
import { ExecInputSender, resizeFrame } from './exec-input.js';
import { execFailure, exitCodeFrom } from './exec-outcome.js';
import { commandsIn, identityOf, newCommand } from './exec-processes.js';
import type { Turns } from './turns.js';
import { pingFrame, SpdyParser, SpdyStreams, type SpdyFrame } from './spdy.js';
import { drainInput, inputPipes } from './stuck-input.js';
import { openStreams } from './upgrade.js';

/** Where and how a command is to run. */
export interface ExecOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly log: Log;
  readonly turns: Turns;
  readonly records: CommandRecords;
  /** The runtime's own id of the container. */
  readonly runtimeId: string;
  readonly mainPid: number;
  readonly request: ExecRequest;
  readonly signal: StopSignal;
}

/** A process that was not seen by then has not been started. */
const FIND_MS = 10_000;
const FIND_STEP_MS = 5;
const FIND_PIPE_MS = 1_000;
/** Between one sending of a terminal's first size and the next. */
const SIZE_DELAYS_MS = [20, 30, 50, 100, 200, 400, 800];
/** How often a command with input is looked at, and how long after its end that is told unless it is stuck. */
const STUCK_LOOK_MS = 100;
const STUCK_MS = 200;
const DRAIN_TURN_MS = 5;
const MAX_DRAIN_TURNS = 1_000;
/** The end of a command is told in far less. */
const MAX_STATUS_BYTES = 64 * 1024;

/** Runs a command by the runtime's streaming; see `ContainerRuntime.exec`. */
export async function* execCommand(options: ExecOptions): AsyncGenerator<ExecEvent> {
  const { request, signal, mainPid, clock } = options;
  const command = commandLineFor(request);
  if (signal.aborted) return;
  if (pidNamespaceOf(mainPid) === undefined) {
    throw new CloudlessError(
      'precondition',
      `exec: process ${mainPid} of the container is not there: it has just ended, or this agent does not share the pid namespace of the host`,
    );
  }
  const leave = new AbortController();
  let timedOut = false;
  const onAbort = (): void => leave.abort();
  const timer =
    request.timeoutMs === undefined ? undefined : clock.setTimer(request.timeoutMs, () => ((timedOut = true), leave.abort()));
  signal.addEventListener('abort', onAbort, { once: true });
  options.client.closed.addEventListener('abort', onAbort, { once: true });
  const running = new RunningCommand(options, command, leave.signal);
  try {
    yield* running.events();
  } catch (reason) {
    if (signal.aborted) return;
    if (timedOut) throw new CloudlessError('deadline', `the command did not end within ${request.timeoutMs} ms`);
    throw running.input.failure === undefined ? reason : running.input.failure.reason;
  } finally {
    timer?.cancel();
    signal.removeEventListener('abort', onAbort);
    options.client.closed.removeEventListener('abort', onAbort);
    running.leave();
  }
}

/** One command, from its start to the end of all that it started. */
class RunningCommand {
  readonly input: ExecInputSender;
  private readonly streams = new SpdyStreams();
  private readonly parser = new SpdyParser();
  private readonly names = new Map<number, string>();
  private socket: Duplex | undefined;
  private found: Promise<HostProcess | undefined> = Promise.resolve(undefined);
  private hasEnded = false;
  private status = '';

  constructor(
    private readonly options: ExecOptions,
    private readonly command: readonly string[],
    private readonly signal: AbortSignal,
  ) {
    this.input = new ExecInputSender(options.request);
  }

  async *events(): AsyncGenerator<ExecEvent> {
    const { socket, head } = await this.start();
    const onAbort = (): void => void socket.destroy();
    this.signal.addEventListener('abort', onAbort, { once: true });
    try {
      if (this.signal.aborted) throw new CloudlessError('unavailable', 'the caller has gone');
      for (const chunk of [head]) yield* this.take(chunk);
      if (this.hasEnded) return;
      for await (const chunk of socket as AsyncIterable<Buffer>) {
        yield* this.take(chunk);
        if (this.hasEnded) return;
      }
    } catch (reason) {
      if (reason instanceof CloudlessError) throw reason;
      throw this.gone(reason);
    } finally {
      this.signal.removeEventListener('abort', onAbort);
    }
    if (this.status === '') throw this.gone();
    yield this.ended();
  }

  /** Ends the connection, and the command unless it has ended. */
  leave(): void {
    this.input.leave();
    this.socket?.destroy();
    const { log, records } = this.options;
    const wasEnded = this.hasEnded;
    void this.found
      .then((command) => {
        if (command === undefined) return undefined;
        return wasEnded ? records.delete(command) : records.end(command);
      })
      .catch((reason: unknown) => log.warn('command of a caller that has gone not ended', errorFields(reason)));
  }

  private async start(): Promise<{ readonly socket: Duplex; readonly head: Buffer }> {
    const { client, runtimeId, request, turns, mainPid } = this.options;
    const release = await turns.take(runtimeId);
    try {
      const before = new Set(commandsIn(mainPid).map(identityOf));
      const shimPid = readProcess(mainPid)?.parentPid ?? 0;
      const pipesBefore = inputPipes(shimPid);
      const tty = request.tty !== undefined;
      const { url } = await client
        .slow('Exec', (calls, signal) =>
          calls.exec(
            { containerId: runtimeId, cmd: [...this.command], tty, stdin: this.input.isThere, stdout: true, stderr: !tty },
            { signal },
          ),
        )
        .catch((reason: unknown) => {
          throw errorKindOf(reason) === 'internal' ? execFailure(errorMessageOf(reason), reason) : reason;
        });
      const opened = await openStreams(url, this.signal);
      this.socket = opened.socket;
      opened.socket.on('error', () => undefined); // told by the iteration
      this.found = this.find(before);
      void this.found
        .then(() => this.ownPipes(shimPid, pipesBefore))
        .finally(release) // the next command of this container may start: ours is told from it
        .then(async (pipes) => this.freeInput(await this.found, pipes, opened.socket))
        .catch(() => undefined);
      await this.openEach(opened.socket);
      return opened;
    } catch (reason) {
      if (this.socket === undefined) release();
      throw reason;
    }
  }

  /** The runtime starts the command when all the streams that it expects are there. */
  private async openEach(socket: Duplex): Promise<void> {
    const { tty } = this.options.request;
    const open = async (name: string): Promise<number> => {
      const { streamId, frame } = this.streams.open('streamtype', name);
      this.names.set(streamId, name);
      await writeInTurn(socket, frame);
      return streamId;
    };
    await open('error');
    const stdin = this.input.isThere ? await open('stdin') : undefined;
    await open('stdout');
    if (tty === undefined) await open('stderr');
    const resize = tty === undefined ? undefined : await open('resize');
    if (resize !== undefined && tty !== undefined) {
      void this.keepSize(socket, resizeFrame(resize, tty));
    }
    if (stdin !== undefined) void this.input.send(socket, stdin, resize);
  }

  /** Runtimes lose a size that comes before the terminal is there, and do not tell when it is. The same size again changes nothing. */
  private async keepSize(socket: Duplex, frame: Buffer): Promise<void> {
    for (const delayMs of SIZE_DELAYS_MS) {
      if (this.hasEnded || this.input.wasResized || socket.destroyed) return;
      await writeInTurn(socket, frame);
      await sleep(this.options.clock, delayMs);
    }
  }

  /** Which process of this machine the command is. */
  private async find(before: ReadonlySet<string>): Promise<HostProcess | undefined> {
    const { clock, mainPid } = this.options;
    const until = clock.now() + FIND_MS;
    while (!this.hasEnded && clock.now() < until && pidNamespaceOf(mainPid) !== undefined) {
      const found = newCommand(mainPid, before, this.command);
      if (found !== undefined) {
        this.options.records.add(found);
        return found;
      }
      await sleep(clock, FIND_STEP_MS);
    }
    return undefined;
  }

  /** The pipe by which the command gets its input; none when it has none, or is not seen in time. */
  private async ownPipes(shimPid: number, before: ReadonlySet<string>): Promise<readonly string[]> {
    const { clock } = this.options;
    for (const until = clock.now() + FIND_PIPE_MS; this.input.isThere && !this.hasEnded && clock.now() < until;) {
      const pipes = [...inputPipes(shimPid)].filter((pipe) => !before.has(pipe));
      if (pipes.length > 0) return pipes;
      await sleep(clock, FIND_STEP_MS);
    }
    return [];
  }

  /** Input that a command leaves unread must not keep its end from being told. */
  private async freeInput(command: HostProcess | undefined, pipes: readonly string[], socket: Duplex): Promise<void> {
    const { clock } = this.options;
    const isOver = (): boolean => !this.input.isThere || this.hasEnded || socket.destroyed;
    const lives = (): boolean => command !== undefined && readProcess(command.pid)?.startToken === command.startToken;
    while (!isOver() && lives()) await sleep(clock, STUCK_LOOK_MS);
    if (!isOver()) await sleep(clock, STUCK_MS);
    for (let turn = 0; !isOver() && turn < MAX_DRAIN_TURNS; turn += 1) {
      this.input.leave();
      drainInput(pipes); // a pipe full; what waits behind it comes after
      await sleep(clock, DRAIN_TURN_MS);
    }
    if (this.input.isThere && !this.hasEnded) socket.destroy(); // it will not be told any more
  }

  private *take(chunk: Uint8Array): Generator<ExecEvent> {
    for (const frame of this.parser.feed(chunk)) {
      const event = this.toEvent(frame);
      if (event === undefined) continue;
      yield event;
      if (event.kind === 'exited') return;
    }
  }

  private toEvent(frame: SpdyFrame): ExecEvent | undefined {
    if (frame.kind === 'ping') this.socket?.write(pingFrame(frame.id));
    if (frame.kind !== 'data') return undefined;
    const name = this.names.get(frame.streamId);
    if (name === 'stdout' || name === 'stderr') return { kind: 'output', stream: name, data: frame.data };
    if (name !== 'error') return undefined;
    this.status = (this.status + new TextDecoder().decode(frame.data)).slice(0, MAX_STATUS_BYTES);
    return isWhole(this.status) ? this.ended() : undefined;
  }

  private ended(): ExecEvent {
    this.hasEnded = true;
    return { kind: 'exited', exitCode: exitCodeFrom(this.status) };
  }

  private gone(cause?: unknown): CloudlessError {
    return new CloudlessError(
      'unavailable',
      'exec: the container runtime ended the connection',
      cause === undefined ? {} : { cause },
    );
  }
}

function isWhole(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}
