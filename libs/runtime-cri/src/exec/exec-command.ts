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
import {
  isRunning,
  readPidNamespace,
  readProcess,
  type HostProcess,
} from '../system/host-processes.js';
import type { KeyedMutex } from '../system/keyed-mutex.js';
import { pollUntilFound } from './poll-until-found.js';
import { toCommandLine } from './command-line.js';
import type { CommandRecords } from './command-records.js';
import { CommandStreams } from './command-streams.js';
import { ExecInputSender } from './exec-input.js';
import { toExecError } from './exit-status.js';
import { findCommands, findNewCommand, toIdentity } from './exec-processes.js';
import { drainInput, findInputPipes } from './stuck-input.js';
import { openStreamConnection } from './upgrade.js';

/** One command in a container, and what runs it. */
export interface ExecOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly log: Log;
  /** Serializes the starts of the commands of one container, by `runtimeId`. */
  readonly locks: KeyedMutex;
  readonly records: CommandRecords;
  /** Id of the container in the container runtime. */
  readonly runtimeId: string;
  /** Process id of the container's main process on this machine. */
  readonly mainPid: number;
  readonly request: ExecRequest;
  /** Ends the command when aborted; the events then end without an exit. */
  readonly signal: StopSignal;
}

/**
 * Longest time for which a command delays the start of the next command of its container: until its
 * own process is found, because two new processes could not be distinguished.
 */
const START_LOCK_MS = 10_000;
/**
 * Time after which a command without a visible process counts as ended: its process is assumed to
 * have started and ended between two polls.
 */
const MAX_FIND_MS = 30_000;
/**
 * Time for which the process is still searched after the caller has left: the container runtime may
 * start the process late, and the process must be ended.
 */
const LATE_START_MS = 10_000;
/** Interval and time limit of the search for the input pipe. */
const FIND_STEP_MS = 5;
const FIND_PIPE_MS = 1_000;
/** Interval of the checks whether the process of a command with input still runs. */
const STUCK_POLL_MS = 100;
/** Time after the end of the process within which the runtime usually sends the exit status. */
const STUCK_MS = 200;
/** Pause between two reads of the input pipe, in which the runtime fills the pipe again. */
const DRAIN_INTERVAL_MS = 5;
/** Time limit for emptying the input pipe: a busy runtime takes seconds to send the exit status. */
const DRAIN_LIMIT_MS = 60_000;

/**
 * Runs a command through the streaming server of the container runtime, see
 * `ContainerRuntime.exec`. When the caller stops reading or `signal` is aborted, the command is
 * ended in the background.
 * @throws kind `invalid` for an invalid command, `precondition` when the processes of the container
 *   are not visible, `deadline` after `request.timeoutMs`.
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
  let hasTimedOut = false;
  const onAbort = (): void => leave.abort();
  const timer =
    request.timeoutMs === undefined
      ? undefined
      : clock.setTimer(request.timeoutMs, () => ((hasTimedOut = true), leave.abort()));
  signal.addEventListener('abort', onAbort, { once: true });
  options.client.closed.addEventListener('abort', onAbort, { once: true });
  const running = new RunningCommand(options, command, leave.signal);
  try {
    yield* running.events();
  } catch (reason) {
    if (signal.aborted) return;
    if (hasTimedOut)
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

/** One command, from its start to the end of all its processes. Call `abandon` in every case. */
class RunningCommand {
  readonly input: ExecInputSender;
  private streams: CommandStreams | undefined;
  private process: Promise<HostProcess | undefined> = Promise.resolve(undefined);
  /** Monotonic time at which the caller stopped reading; undefined before. */
  private abandonedAtMs: number | undefined;

  constructor(
    private readonly options: ExecOptions,
    private readonly command: readonly string[],
    private readonly signal: AbortSignal,
  ) {
    this.input = new ExecInputSender(options.request);
  }

  /** Starts the command and yields its events. Call it once. */
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

  /**
   * Closes the connection. A command that has not ended is ended in the background, as soon as its
   * process is found.
   */
  abandon(): void {
    const { log, records, clock } = this.options;
    this.abandonedAtMs ??= clock.now();
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
              containerId: runtimeId,
              cmd: [...this.command],
              tty: tty !== undefined,
              stdin: this.input.hasInput,
              stdout: true,
              stderr: tty === undefined,
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
        .then(() => this.findNewPipes(shimPid, pipesBefore))
        .finally(release) // the next command of this container may start
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
   * Finds and records the process of the command, so that the process can be ended with its caller.
   * @param before - Identities of the commands that ran in the container before the start.
   * @returns Undefined when the command or its container has ended, or the caller left more than
   *   {@link LATE_START_MS} ago.
   */
  private async findProcess(before: ReadonlySet<string>): Promise<HostProcess | undefined> {
    const { clock, mainPid, records } = this.options;
    const isSearchOver = (): boolean =>
      this.hasEnded ||
      readPidNamespace(mainPid) === undefined ||
      (this.abandonedAtMs !== undefined && clock.now() - this.abandonedAtMs >= LATE_START_MS);
    const found = await pollUntilFound(
      () => findNewCommand(mainPid, before, this.command),
      isSearchOver,
      clock,
    );
    if (found !== undefined) records.add(found);
    return found;
  }

  /** Returns the process of the command; undefined when it is not found within the delay. */
  private async waitForProcess(delayMs: number): Promise<HostProcess | undefined> {
    const found = new AbortController();
    const timeout = sleep(this.options.clock, delayMs, found.signal).then(
      () => undefined,
      () => undefined,
    );
    try {
      return await Promise.race([this.process, timeout]);
    } finally {
      found.abort(); // cancels the timer
    }
  }

  /**
   * Finds the pipe through which the command gets its input.
   * @param before - Input pipes that existed before the start.
   * @returns Empty when the command has no input, or no new pipe appears within {@link
   *   FIND_PIPE_MS}.
   */
  private async findNewPipes(
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
   * Waits for the end of a command with input, and then empties its input pipe until the runtime
   * has sent the exit status: unread input keeps containerd 1.6 from sending the status.
   * @param command - The process of the command; undefined when it was not found.
   */
  private async drainStuckInput(
    command: HostProcess | undefined,
    pipes: readonly string[],
    streams: CommandStreams,
  ): Promise<void> {
    const { clock } = this.options;
    const isDone = (): boolean => !this.input.hasInput || this.hasEnded || streams.isClosed;
    const hasProcess = (): boolean => command !== undefined && isRunning(command);
    while (!isDone() && hasProcess()) await sleep(clock, STUCK_POLL_MS);
    if (!isDone()) await sleep(clock, STUCK_MS);
    for (const until = clock.now() + DRAIN_LIMIT_MS; !isDone() && clock.now() < until;) {
      this.input.stop();
      drainInput(pipes); // at most one full pipe; the runtime then writes more input
      await sleep(clock, DRAIN_INTERVAL_MS);
    }
    // The runtime will not send the exit status any more.
    if (this.input.hasInput && !this.hasEnded) streams.close();
  }
}
