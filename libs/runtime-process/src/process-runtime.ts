import {
  backoffDelayMs,
  CloudlessError,
  definedFields,
  errorFields,
  errorKindOf,
  sleep,
  StoppedError,
  type ContainerId,
  type StopSignal,
} from '@cloudless/base';
import {
  EventBroadcaster,
  flattenBatches,
  HEALTHY,
  PROCESS_DNS_CAPABILITY,
  type ContainerEvent,
  type ContainerLease,
  type ContainerRequest,
  type ContainerRuntime,
  type ContainerSignal,
  type ContainerStatus,
  type ExecEvent,
  type ExecRequest,
  type LogBatch,
  type LogLine,
  type LogRequest,
  type RuntimeHealth,
  withStartFailure,
} from '@cloudless/runtime';
import { connectOrStart, isAlive, readStartToken } from '@cloudless/app-kit/background';
import {
  SupervisorConnection,
  createDisconnectedError,
  type SupervisorResponse,
} from './client/supervisor-connection.js';
import { streamExec } from './client/exec-stream.js';
import { PipeHolder } from './client/pipe-holder.js';
import { SupervisorMonitor } from './client/supervisor-monitor.js';
import { ensurePrivateDirectory, toSupervisorSettings } from './client/supervisor-settings.js';
import { readLog } from './logs/log-reader.js';
import { layout } from './supervisor/container/container-paths.js';
import { toDnsProblem } from './supervisor/resolver/dns-problem.js';
import { toSupervisorProgram } from './supervisor/run-supervisor.js';
import { deductWait, toStartRequest } from './client/start-request.js';
import { requireLeases, requireSecrets } from './client/supervisor-capabilities.js';
import { combineSignals } from './client/combine-signals.js';
import type { ProcessRuntimeOptions } from './process-runtime-options.js';
import { EXEC_TTY, LEASES, SECRETS, type SupervisorSettings } from './wire/messages.js';

/** A {@link ContainerRuntime} that runs commands as plain processes under a supervisor process. */
export interface ProcessRuntime extends ContainerRuntime {
  /** Returns the process id of the supervisor. Starts a supervisor when none runs. */
  supervisorPid(): Promise<number>;
  /**
   * Stops every container, ends the supervisor and closes this runtime. No process is left behind.
   * Records and logs stay on disk, and a runtime that is opened later on the same directory finds
   * them.
   * @param graceMs - Milliseconds between SIGTERM and SIGKILL. Default 0: SIGKILL at once.
   */
  shutdown(graceMs?: number): Promise<void>;
}

/**
 * Back-off after a failed connection to the supervisor. The first attempt after a supervisor died
 * has no delay.
 */
const RECONNECT = { firstMs: 10, maxMs: 5_000, jitter: 0.2 };
/** Interval of the checks whether the supervisor has exited; it exits within milliseconds. */
const SHUTDOWN_POLL_MS = 2;
/** Most attempts of one shutdown. An attempt fails when the supervisor dies during it. */
const MAX_SHUTDOWN_ATTEMPTS = 3;

/**
 * Opens the process runtime of a directory: connects to its supervisor, or starts a supervisor. The
 * caller calls `close` or `shutdown`.
 * @throws kind `precondition` when other users can access the directory or an incompatible
 *   supervisor runs, `unavailable` when no supervisor can be started, `invalid` for invalid
 *   options. {@link StoppedError} when the signal is aborted; a supervisor that was started for this
 *   call is ended.
 */
export async function openProcessRuntime(options: ProcessRuntimeOptions): Promise<ProcessRuntime> {
  const settings = toSupervisorSettings(options);
  ensurePrivateDirectory(options.directory);
  const runtime = new SupervisedRuntime(options, settings);
  const { signal } = options;
  const isAborted = (): boolean => signal?.aborted === true;
  if (isAborted()) throw new StoppedError(signal?.reason);
  const onAbort = (): void => runtime.abandonFirstConnection();
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    await runtime.supervisorPid();
  } catch (reason) {
    throw isAborted() ? new StoppedError(signal?.reason) : reason;
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
  runtime.startMonitor();
  return runtime;
}

class SupervisedRuntime implements ProcessRuntime {
  readonly name = 'process';
  /** The open connection, or the attempt to open one; undefined without a connection. */
  private connecting: Promise<SupervisorConnection> | undefined;
  private readonly closing = new AbortController();
  private readonly eventReaders = new EventBroadcaster();
  private readonly pipeHolder: PipeHolder;
  private wasConnected = false;
  /** Failed connection attempts in a row. */
  private failures = 0;
  /** Capabilities of the connected supervisor, which may be older than this client. */
  private supervisorCapabilities: readonly string[] = [];
  /** Process id of the connected supervisor. */
  private connectedPid: number | undefined;
  private readonly monitor: SupervisorMonitor;

  constructor(
    private readonly options: ProcessRuntimeOptions,
    private readonly settings: SupervisorSettings,
  ) {
    this.pipeHolder = new PipeHolder(options.directory);
    this.monitor = new SupervisorMonitor(options.clock, () => this.ping());
  }

  /** Monitors the supervisor until this runtime is closed. */
  startMonitor(): void {
    void this.monitor.run(this.closing.signal);
  }

  /** Closes the runtime unless a supervisor has accepted a connection. */
  abandonFirstConnection(): void {
    if (!this.wasConnected) void this.close();
  }

  async version(): Promise<string> {
    const { hello } = await this.getConnection();
    return hello.version;
  }

  capabilities(): readonly string[] {
    if (this.options.denyStarts === true) return [];
    return [
      'runtime.process',
      ...[LEASES, EXEC_TTY, SECRETS, PROCESS_DNS_CAPABILITY].filter((name) =>
        this.supervisorCapabilities.includes(name),
      ),
    ];
  }

  async supervisorPid(): Promise<number> {
    return (await this.getConnection()).hello.pid;
  }

  /** Does nothing else, because a process needs no image. */
  async prepare(): Promise<void> {
    this.requireStarts();
  }

  async start(requested: ContainerRequest): Promise<ContainerStatus> {
    this.requireStarts();
    const { connection, waitedMs } = await this.getConnectionTimed();
    const { request, dnsProblem } = toStartRequest(requested, connection, waitedMs);
    const status = requireStatus(await connection.request({ type: 'start', request }));
    return dnsProblem === undefined ? status : { ...status, problems: [toDnsProblem(dnsProblem)] };
  }

  private requireStarts(): void {
    if (this.options.denyStarts !== true) return;
    throw new CloudlessError(
      'unimplemented',
      'command: this node lacks the capability runtime.process, because its agent runs with --deny-processes; use image',
    );
  }

  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    return requireStatus(
      await (await this.getConnection()).request({ type: 'stop', containerId, graceMs }),
    );
  }

  async signal(containerId: ContainerId, signal: ContainerSignal): Promise<void> {
    const connection = await this.getConnection();
    requireSecrets(connection, 'signal');
    await connection.request({ type: 'signal', containerId, signal });
  }

  async limitEgress(): Promise<void> {
    throw new CloudlessError('unimplemented', 'network.egress: processes have no own network');
  }

  async renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    const { connection, waitedMs } = await this.getConnectionTimed();
    requireLeases(connection);
    const remainingLeases = [...leases].map(
      ([id, lease]) => [id, lease === undefined ? null : deductWait(lease, waitedMs)] as const,
    );
    await connection.request({ type: 'renew', leases: remainingLeases });
  }

  async remove(containerId: ContainerId): Promise<void> {
    await (await this.getConnection()).request({ type: 'remove', containerId });
  }

  async list(): Promise<readonly ContainerStatus[]> {
    return (await (await this.getConnection()).request({ type: 'list' })).items;
  }

  health(): RuntimeHealth {
    return {
      ...HEALTHY,
      processesSilentMs: this.monitor.silentMs,
      ...definedFields({ supervisorPid: this.connectedPid }),
    };
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    return this.eventReaders.subscribe(
      signal,
      this.closing.signal.aborted ? createDisconnectedError() : undefined,
    );
  }

  logs(containerId: ContainerId, request: LogRequest, signal: StopSignal): AsyncGenerator<LogLine> {
    return flattenBatches(this.logBatches(containerId, request, signal));
  }

  async *logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogBatch> {
    const connection = await this.getConnection();
    const { phase } = requireStatus(await connection.request({ type: 'inspect', containerId }));
    if (phase === 'exited') await connection.waitUntilDrained(containerId);
    const directory = layout.log(layout.container(this.options.directory, containerId));
    const stop = combineSignals(signal, this.closing.signal);
    try {
      yield* readLog({
        directory,
        request,
        signal: stop.signal,
        waitUntilDrained: () => this.waitUntilDrained(containerId),
      });
    } finally {
      stop.release();
    }
    if (this.closing.signal.aborted && !signal.aborted) throw createDisconnectedError();
  }

  async *exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncGenerator<ExecEvent> {
    await this.getConnection();
    const { directory, clock } = this.options;
    yield* withStartFailure(
      containerId,
      request,
      streamExec(directory, this.settings, containerId, request, signal, clock),
    );
  }

  async close(): Promise<void> {
    if (this.closing.signal.aborted) return;
    const { connecting } = this;
    this.closing.abort();
    const connection = await connecting?.catch(() => undefined);
    connection?.close();
    this.pipeHolder.close();
    this.failEventReaders();
  }

  async shutdown(graceMs = 0): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      const connection = await this.getConnection();
      const { pid } = connection.hello;
      const startToken = readStartToken(pid);
      try {
        await connection.request({ type: 'shutdown', graceMs });
      } catch (reason) {
        // The supervisor died without an answer. Its successor adopts the remaining containers, and
        // the next attempt ends them.
        if (errorKindOf(reason) !== 'unavailable' || attempt >= MAX_SHUTDOWN_ATTEMPTS) throw reason;
        continue;
      }
      await this.close();
      while (startToken !== undefined && isAlive(pid, startToken))
        await sleep(this.options.clock, SHUTDOWN_POLL_MS);
      return;
    }
  }

  /** @throws kind `unavailable` when the supervisor gives no answer. */
  private async ping(): Promise<void> {
    const connection = await this.getConnection();
    try {
      await connection.request({ type: 'ping' });
    } catch (reason) {
      // A supervisor of an earlier version refuses the request, which is an answer.
      if (errorKindOf(reason) === 'unavailable') throw reason;
    }
  }

  /**
   * Returns the connection and the milliseconds spent waiting for it. A lease counts from the
   * caller's request, and a new supervisor may take seconds to start.
   */
  private async getConnectionTimed(): Promise<{
    readonly connection: SupervisorConnection;
    readonly waitedMs: number;
  }> {
    const { clock } = this.options;
    const calledAtMs = clock.now();
    const connection = await this.getConnection();
    return { connection, waitedMs: clock.now() - calledAtMs };
  }

  /** Returns the open connection, or opens one. */
  private getConnection(): Promise<SupervisorConnection> {
    if (this.closing.signal.aborted) return Promise.reject(createDisconnectedError());
    if (this.connecting === undefined) {
      const attempt = this.connect();
      this.connecting = attempt;
      attempt.catch(() => {
        if (this.connecting === attempt) this.connecting = undefined;
      });
    }
    return this.connecting;
  }

  private async connect(): Promise<SupervisorConnection> {
    const { directory, supervisorCommand, idleMs = 30_000, clock } = this.options;
    try {
      let onLost = (): void => undefined;
      const open = (): Promise<SupervisorConnection> =>
        SupervisorConnection.open(directory, this.settings, {
          onEvent: (event) => this.onEvent(event),
          onClose: () => onLost(),
        });
      const program = toSupervisorProgram(directory, supervisorCommand, idleMs);
      const connection = await connectOrStart(open, program, clock, this.closing.signal);
      this.wasConnected = true;
      this.connectedPid = connection.hello.pid;
      onLost = () => this.onConnectionLost();
      if (!connection.isOpen) throw createDisconnectedError();
      this.pipeHolder.applyAll((await connection.request({ type: 'list' })).items);
      this.failures = 0;
      this.supervisorCapabilities = connection.hello.capabilities ?? [];
      return connection;
    } catch (reason) {
      throw this.closing.signal.aborted ? createDisconnectedError() : reason;
    }
  }

  /**
   * Fails the event readers, which must list again, and connects to a new supervisor at once,
   * because running containers need a supervisor.
   */
  private onConnectionLost(): void {
    this.connecting = undefined;
    this.connectedPid = undefined;
    this.failEventReaders();
    if (this.closing.signal.aborted) return;
    this.options.log.warn('supervisor lost', { directory: this.options.directory });
    void this.reconnect();
  }

  private async reconnect(): Promise<void> {
    const { clock, random, log } = this.options;
    while (!this.closing.signal.aborted) {
      try {
        await this.getConnection();
        return;
      } catch (reason) {
        if (this.closing.signal.aborted) return;
        this.failures += 1;
        log.warn('supervisor not reached', errorFields(reason));
      }
      const delayMs = backoffDelayMs(RECONNECT, this.failures, random);
      await sleep(clock, delayMs, this.closing.signal).catch(() => undefined);
    }
  }

  /**
   * Waits until all output of a container is in its log files. Repeats the request when the
   * supervisor is replaced, so that followers of the log continue.
   */
  private async waitUntilDrained(containerId: ContainerId): Promise<void> {
    for (;;) {
      try {
        const connection = await this.getConnection();
        return await connection.waitUntilDrained(containerId);
      } catch (reason) {
        if (errorKindOf(reason) === 'notFound') return; // a removed container writes no output
        if (errorKindOf(reason) !== 'unavailable' || this.closing.signal.aborted) throw reason;
      }
    }
  }

  private onEvent(event: ContainerEvent): void {
    this.pipeHolder.applyStatus(event.status);
    this.eventReaders.publish(event);
  }

  private failEventReaders(): void {
    this.eventReaders.fail(createDisconnectedError());
  }
}

function requireStatus({ status }: SupervisorResponse): ContainerStatus {
  if (status === undefined)
    throw new CloudlessError('internal', 'the response of the supervisor has no status');
  return status;
}
