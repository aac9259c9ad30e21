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
import type { ExecEvent, ExecRequest } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';
import { readPidNamespace, readProcess, type HostProcess } from '../system/host-processes.js';
import type { KeyedMutex } from '../system/keyed-mutex.js';
import { pollUntilFound } from './poll-until-found.js';
import { toCommandLine } from './command-line.js';
import type { CommandRecords } from './command-records.js';
import { CommandStreams } from './command-streams.js';
import { ExecInputSender } from './exec-input.js';
import { toExecError } from './exit-status.js';
import { findCommands, toIdentity, findNewCommand } from './exec-processes.js';
import { drainInput, findInputPipes } from './stuck-input.js';
import { openStreamConnection } from './upgrade.js';

export interface ExecOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly log: Log;
  readonly locks: KeyedMutex;
  readonly records: CommandRecords;
  /** Id of the container in the container runtime. */
  readonly runtimeId: string;
  readonly mainPid: number;
  readonly request: ExecRequest;
  readonly signal: StopSignal;
}

/**
 * Longest wait of the next command of a container until the process of the previous command is
 * found.
 */
const START_LOCK_MS = 10_000;
/** A process that is not found by then is assumed to have started and ended between two polls. */
const MAX_FIND_MS = 30_000;
/**
 * Time after the caller has left in which the process is still searched, because it may start late
 * and must be ended.
 */
const LATE_START_MS = 10_000;
const FIND_STEP_MS = 5;
const FIND_PIPE_MS = 1_000;
/**
 * Interval in which the process of a command with input is checked, and time after its end after
 * which the command counts as stuck unless the runtime has reported the end.
 */
const STUCK_POLL_MS = 100;
const STUCK_MS = 200;
const DRAIN_INTERVAL_MS = 5;
/** Time limit for emptying the input pipe: a busy runtime takes seconds to send the exit status. */
const DRAIN_LIMIT_MS = 60_000;

/**
 * Runs a command through the streaming server of the container runtime; see
 * `ContainerRuntime.exec`.
 */
export async function* execCommand(options: ExecOptions): AsyncGenerator<ExecEvent> {
  const { request, signal, mainPid, clock } = options;
  const command = toCommandLine(request);
  if (signal.aborted) return;
  if (readPidNamespace(mainPid) === undefined) {
    throw new CloudlessError(
      'precondition',
      `exec: process ${mainPid} of the container is not visible: it has just ended, or this agent does not share the pid namespace of the host`,
    );
  }
  const leave = new AbortController();
  let timedOut = false;
  const onAbort = (): void => leave.abort();
  const timer =
    request.timeoutMs === undefined
      ? undefined
      : clock.setTimer(request.timeoutMs, () => ((timedOut = true), leave.abort()));
  signal.addEventListener('abort', onAbort, { once: true });
  options.client.closed.addEventListener('abort', onAbort, { once: true });
  const running = new RunningCommand(options, command, leave.signal);
  try {
    yield* running.events();
  } catch (reason) {
    if (signal.aborted) return;
    if (timedOut)
      throw new CloudlessError(
        'deadline',
        `the command did not end within ${request.timeoutMs} ms`,
      );
    throw running.input.failure === undefined ? reason : running.input.failure.reason;
  } finally {
    timer?.cancel();
    signal.removeEventListener('abort', onAbort);
    options.client.closed.removeEventListener('abort', onAbort);
    running.abandon();
  }
}

/** One command, from its start to the end of all its processes. */
class RunningCommand {
  readonly input: ExecInputSender;
  private streams: CommandStreams | undefined;
  private process: Promise<HostProcess | undefined> = Promise.resolve(undefined);
  /** Monotonic time at which the caller left; undefined before. */
  private abandonedAt: number | undefined;

  constructor(
    private readonly options: ExecOptions,
    private readonly command: readonly string[],
    private readonly signal: AbortSignal,
  ) {
    this.input = new ExecInputSender(options.request);
  }

  async *events(): AsyncGenerator<ExecEvent> {
    const streams = await this.start();
    const onAbort = (): void => streams.close();
    this.signal.addEventListener('abort', onAbort, { once: true });
    try {
      if (this.signal.aborted) throw new CloudlessError('unavailable', 'the caller has left');
      yield* streams.events();
    } finally {
      this.signal.removeEventListener('abort', onAbort);
    }
  }

  /** Closes the connection and ends the command unless it has ended. */
  abandon(): void {
    const { log, records, clock } = this.options;
    this.abandonedAt ??= clock.now();
    this.input.stop();
    this.streams?.close();
    const wasEnded = this.hasEnded;
    void this.process
      .then((command) => {
        if (command === undefined) return undefined;
        return wasEnded ? records.delete(command) : records.end(command);
      })
      .catch((reason: unknown) =>
        log.warn('command of a caller that has left could not be ended', errorFields(reason)),
      );
  }

  private get hasEnded(): boolean {
    return this.streams?.hasEnded === true;
  }

  private async start(): Promise<CommandStreams> {
    const { client, runtimeId, request, locks, mainPid, clock } = this.options;
    const release = await locks.lock(runtimeId);
    try {
      const before = new Set(findCommands(mainPid).map(toIdentity));
      const shimPid = readProcess(mainPid)?.parentPid ?? 0;
      const pipesBefore = findInputPipes(shimPid);
      const { tty } = request;
      const { url } = await client
        .callSlow('Exec', (calls, signal) =>
          calls.exec(
            {
              ...{ containerId: runtimeId, cmd: [...this.command] },
              ...{
                tty: tty !== undefined,
                stdin: this.input.hasInput,
                stdout: true,
                stderr: tty === undefined,
              },
            },
            { signal },
          ),
        )
        .catch((reason: unknown) => {
          throw errorKindOf(reason) === 'internal'
            ? toExecError(errorMessageOf(reason), reason)
            : reason;
        });
      const opened = await openStreamConnection(url, this.signal);
      const streams = (this.streams = new CommandStreams({
        ...opened,
        input: this.input,
        tty,
        clock,
      }));
      this.process = this.findProcess(before);
      void this.waitForProcess(START_LOCK_MS)
        .then(() => this.findOwnPipes(shimPid, pipesBefore))
        .finally(release) // the next command of this container may start: this one is identified
        .then(async (pipes) => {
          const command = await this.waitForProcess(MAX_FIND_MS - START_LOCK_MS);
          await this.drainStuckInput(command, pipes, streams);
        })
        .catch(() => undefined);
      await streams.open();
      return streams;
    } catch (reason) {
      if (this.streams === undefined) release();
      throw reason;
    }
  }

  /**
   * Finds the process of the command, even if the runtime starts it late: the process must end with
   * its caller.
   */
  private async findProcess(before: ReadonlySet<string>): Promise<HostProcess | undefined> {
    const { clock, mainPid, records } = this.options;
    const isOver = (): boolean =>
      this.hasEnded ||
      readPidNamespace(mainPid) === undefined ||
      (this.abandonedAt !== undefined && clock.now() - this.abandonedAt >= LATE_START_MS);
    const found = await pollUntilFound(
      () => findNewCommand(mainPid, before, this.command),
      isOver,
      clock,
    );
    if (found !== undefined) records.add(found);
    return found;
  }

  /** Returns the process of the command; undefined when it is not found within the delay. */
  private async waitForProcess(delayMs: number): Promise<HostProcess | undefined> {
    const found = new AbortController();
    const late = sleep(this.options.clock, delayMs, found.signal).then(
      () => undefined,
      () => undefined,
    );
    try {
      return await Promise.race([this.process, late]);
    } finally {
      found.abort(); // cancels the timer
    }
  }

  /**
   * Finds the pipe for the input of the command; empty when it has no input, or the pipe is not
   * seen in time.
   */
  private async findOwnPipes(
    shimPid: number,
    before: ReadonlySet<string>,
  ): Promise<readonly string[]> {
    const { clock } = this.options;
    for (
      const until = clock.now() + FIND_PIPE_MS;
      this.input.hasInput && !this.hasEnded && clock.now() < until;
    ) {
      const pipes = [...findInputPipes(shimPid)].filter((pipe) => !before.has(pipe));
      if (pipes.length > 0) return pipes;
      await sleep(clock, FIND_STEP_MS);
    }
    return [];
  }

  /**
   * Empties the input pipe of an ended command, because unread input can keep the runtime from
   * reporting the end.
   */
  private async drainStuckInput(
    command: HostProcess | undefined,
    pipes: readonly string[],
    streams: CommandStreams,
  ): Promise<void> {
    const { clock } = this.options;
    const isOver = (): boolean => !this.input.hasInput || this.hasEnded || streams.isClosed;
    const isAlive = (): boolean =>
      command !== undefined && readProcess(command.pid)?.startToken === command.startToken;
    while (!isOver() && isAlive()) await sleep(clock, STUCK_POLL_MS);
    if (!isOver()) await sleep(clock, STUCK_MS);
    for (const until = clock.now() + DRAIN_LIMIT_MS; !isOver() && clock.now() < until;) {
      this.input.stop();
      drainInput(pipes); // one full pipe; the runtime then writes more
      await sleep(clock, DRAIN_INTERVAL_MS);
    }
    // the runtime will not report the end any more
    if (this.input.hasInput && !this.hasEnded) streams.close();
  }
}
