import {
  CloudlessError,
  definedFields,
  errorKindOf,
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
  type AvailableContainers,
} from '@cloudless/runtime';
import { connectOrStart, findLockHolder, readStartToken } from '@cloudless/app-kit/background';
import {
  SupervisorConnection,
  createDisconnectedError,
  limitAnswer,
  type SupervisorRequest,
  type SupervisorResponse,
} from './client/supervisor-connection.js';
import {
  createSilentSupervisorError,
  SILENT_AFTER_MS,
  SupervisorLink,
  type AttemptListener,
} from './client/supervisor-link.js';
import { streamExec } from './client/exec-stream.js';
import { PipeHolder } from './client/pipe-holder.js';
import { SupervisorMonitor } from './client/supervisor-monitor.js';
import { ensurePrivateDirectory, toSupervisorSettings } from './client/supervisor-settings.js';
import { readLog } from './logs/log-reader.js';
import { layout } from './supervisor/container/container-paths.js';
import { toDnsProblem } from './supervisor/resolver/dns-problem.js';
import { toSupervisorProgram } from './supervisor/run-supervisor.js';
import { toRenewRequest } from './client/renew-request.js';
import { toStartRequest } from './client/start-request.js';
import { requireLeases, requireSecrets } from './client/supervisor-capabilities.js';
import { waitForExit } from './client/wait-for-exit.js';
import { combineSignals } from './client/combine-signals.js';
import type { ProcessRuntimeOptions } from './process-runtime-options.js';
import { readMachineUptimeMs } from './system/machine-uptime.js';
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
   * @throws kind `unavailable` when the supervisor does not answer within 10 s after that time, or
   *   has not exited 10 s later. This runtime stays open in the first case.
   */
  shutdown(graceMs?: number): Promise<void>;
}

/** Capabilities of a node that a supervisor of this version can have. */
const SUPERVISOR_CAPABILITIES = [LEASES, EXEC_TTY, SECRETS, PROCESS_DNS_CAPABILITY];
/** Most attempts of one shutdown. An attempt fails when the supervisor dies during it. */
const MAX_SHUTDOWN_ATTEMPTS = 3;

/**
 * Opens the process runtime of a directory: connects to its supervisor, or starts a supervisor. The
 * caller calls `close` or `shutdown`.
 * @throws kind `precondition` when other users can access the directory or an incompatible
 *   supervisor runs, `unavailable` when no supervisor can be started or, unless
 *   `acceptSilentSupervisor` is set, the running supervisor does not answer within 5 s, `invalid`
 *   for invalid options. {@link StoppedError} when the signal is aborted; a supervisor that was
 *   started for this call is ended.
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
  runtime.startMonitor();
  try {
    await runtime.waitUntilOpen();
  } catch (reason) {
    await runtime.close();
    throw isAborted() ? new StoppedError(signal?.reason) : reason;
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
  return runtime;
}

class SupervisedRuntime implements ProcessRuntime {
  readonly name = 'process';
  private readonly link: SupervisorLink;
  private readonly eventReaders = new EventBroadcaster();
  private readonly pipeHolder: PipeHolder;
  /**
   * Capabilities of the newest supervisor that has answered, which may be older than this client;
   * undefined before the first answer.
   */
  private supervisorCapabilities: readonly string[] | undefined;
  private readonly monitor: SupervisorMonitor;
  private readonly machineUptimeMs: () => number;

  constructor(
    private readonly options: ProcessRuntimeOptions,
    private readonly settings: SupervisorSettings,
  ) {
    const { directory, clock, random, log, machineUptimeMs = readMachineUptimeMs } = options;
    this.machineUptimeMs = machineUptimeMs;
    this.pipeHolder = new PipeHolder(directory);
    this.link = new SupervisorLink({
      connect: (listener, signal) => this.connect(listener, signal),
      onLost: () => {
        this.failEventReaders(); // they must list again
        log.warn('supervisor lost', { directory });
      },
      findSupervisor: () => findLockHolder(directory),
      ...{ clock, random, log },
    });
    this.monitor = new SupervisorMonitor(clock, () => this.ping());
  }

  /** Monitors the supervisor until this runtime is closed. */
  startMonitor(): void {
    void this.monitor.run(this.link.signal);
  }

  /**
   * Resolves when the supervisor answers, or when it is silent and the options accept that: then
   * this runtime goes on to connect.
   */
  async waitUntilOpen(): Promise<void> {
    const connecting = this.link.waitForConnection();
    connecting.catch(() => undefined); // after a silence, the link reports the failure
    await Promise.race([connecting, this.link.waitForSilence()]);
    if (!this.link.isSilent) return void (await connecting);
    if (this.options.acceptSilentSupervisor !== true)
      throw createSilentSupervisorError(this.link.supervisorPid);
    void this.link.keepConnecting();
  }

  /** Closes the runtime unless a supervisor has answered. */
  abandonFirstConnection(): void {
    if (!this.link.hasEverAnswered || this.link.isSilent) void this.close();
  }

  async version(): Promise<string> {
    const { hello } = await this.link.getConnection();
    return hello.version;
  }

  /**
   * Until a supervisor has answered for the first time: all capabilities of this version. Without
   * them, the coordinator would replace the processes that run.
   */
  capabilities(): readonly string[] {
    if (this.options.denyStarts === true) return [];
    const { supervisorCapabilities: found = SUPERVISOR_CAPABILITIES } = this;
    return ['runtime.process', ...SUPERVISOR_CAPABILITIES.filter((name) => found.includes(name))];
  }

  async supervisorPid(): Promise<number> {
    return (await this.link.getConnection()).hello.pid;
  }

  /** Does nothing else, because a process needs no image. */
  async prepare(): Promise<void> {
    this.requireStarts();
  }

  /**
   * @throws kind `unavailable` also when the supervisor does not answer within 10 s. The supervisor
   *   may start the process later: an event then reports the process, and a further start with the
   *   same id fails with kind `exists`. Kind `unavailable` also when the lease ended before the
   *   process could be started: no process is started later either.
   */
  async start(requested: ContainerRequest): Promise<ContainerStatus> {
    this.requireStarts();
    const { connection, waitedMs } = await this.getConnectionTimed();
    const { request, dnsProblem } = toStartRequest(requested, connection, waitedMs);
    const start = { type: 'start', request, sentAtUptimeMs: this.machineUptimeMs() } as const;
    const status = requireStatus(await this.request(connection, start));
    return dnsProblem === undefined ? status : { ...status, problems: [toDnsProblem(dnsProblem)] };
  }

  private requireStarts(): void {
    if (this.options.denyStarts !== true) return;
    throw new CloudlessError(
      'unimplemented',
      'command: this node lacks the capability runtime.process, because its agent runs with --deny-processes; use image',
    );
  }

  /** @throws kind `unavailable` also without an answer within 10 s after the grace period. */
  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    const connection = await this.link.getConnection();
    const stop = { type: 'stop', containerId, graceMs } as const;
    return requireStatus(await this.request(connection, stop, graceMs));
  }

  /**
   * @throws kind `unavailable` also when the supervisor does not answer within 10 s. The supervisor
   *   may send the signal later.
   */
  async signal(containerId: ContainerId, signal: ContainerSignal): Promise<void> {
    const connection = await this.link.getConnection();
    requireSecrets(connection, 'signal');
    await this.request(connection, { type: 'signal', containerId, signal });
  }

  async limitEgress(): Promise<void> {
    throw new CloudlessError('unimplemented', 'network.egress: processes have no own network');
  }

  /**
   * @throws kind `unavailable` also when the supervisor does not answer within 10 s, and when a
   *   lease has ended before the supervisor read its renewal. The container then keeps its earlier
   *   lease.
   */
  async renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    const { connection, waitedMs } = await this.getConnectionTimed();
    requireLeases(connection);
    const renewals = toRenewRequest(leases, waitedMs);
    const sentAtUptimeMs = this.machineUptimeMs();
    if (renewals.leases.length > 0)
      await this.request(connection, { type: 'renew', leases: renewals.leases, sentAtUptimeMs });
    if (renewals.refusals.length > 0) throw renewals.refusals[0];
  }

  /** @throws kind `unavailable` also when the supervisor does not answer within 10 s. */
  async remove(containerId: ContainerId): Promise<void> {
    await this.request(await this.link.getConnection(), { type: 'remove', containerId });
  }

  /** @throws kind `unavailable` also when the supervisor does not answer within 10 s. */
  async list(): Promise<readonly ContainerStatus[]> {
    return (await this.request(await this.link.getConnection(), { type: 'list' })).items;
  }

  /** Processes are missing until a supervisor has answered for the first time. */
  async listAvailable(): Promise<AvailableContainers> {
    return this.supervisorCapabilities === undefined
      ? { containers: [], missing: ['process'] }
      : { containers: await this.list(), missing: [] };
  }

  health(): RuntimeHealth {
    // The monitor counts whole turns since this runtime was opened: it may be behind the link.
    const leastSilentMs = this.link.isSilent ? SILENT_AFTER_MS : 0;
    return {
      ...HEALTHY,
      processesSilentMs: Math.max(this.monitor.silentMs, leastSilentMs),
      ...definedFields({ supervisorPid: this.link.supervisorPid }),
    };
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    return this.eventReaders.subscribe(
      signal,
      this.link.signal.aborted ? createDisconnectedError() : undefined,
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
    const connection = await this.link.getConnection();
    const inspected = await this.request(connection, { type: 'inspect', containerId });
    if (requireStatus(inspected).phase === 'exited')
      await limitAnswer(connection.waitUntilDrained(containerId), this.options.clock);
    const directory = layout.log(layout.container(this.options.directory, containerId));
    const stop = combineSignals(signal, this.link.signal);
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
    if (this.link.signal.aborted && !signal.aborted) throw createDisconnectedError();
  }

  async *exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncGenerator<ExecEvent> {
    await this.link.getConnection();
    const { directory, clock } = this.options;
    yield* withStartFailure(
      containerId,
      request,
      streamExec(directory, this.settings, containerId, request, signal, clock),
    );
  }

  async close(): Promise<void> {
    if (this.link.signal.aborted) return;
    await this.link.close();
    this.pipeHolder.close();
    this.failEventReaders();
  }

  async shutdown(graceMs = 0): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      const connection = await this.link.getConnection();
      const { pid } = connection.hello;
      const startToken = readStartToken(pid);
      try {
        await this.request(connection, { type: 'shutdown', graceMs }, graceMs);
      } catch (reason) {
        if (connection.isOpen) throw reason;
        // The supervisor died without an answer. Its successor adopts the remaining containers, and
        // the next attempt ends them.
        if (errorKindOf(reason) !== 'unavailable' || attempt >= MAX_SHUTDOWN_ATTEMPTS) throw reason;
        continue;
      }
      await this.close();
      if (startToken !== undefined) await waitForExit(pid, startToken, this.options.clock);
      return;
    }
  }

  /**
   * Sends a request and waits for the answer, see {@link limitAnswer} for the limit and the errors.
   */
  private request(
    connection: SupervisorConnection,
    request: SupervisorRequest,
    workMs?: number,
  ): Promise<SupervisorResponse> {
    return limitAnswer(connection.request(request), this.options.clock, workMs);
  }

  /** @throws kind `unavailable` when the supervisor gives no answer. */
  private async ping(): Promise<void> {
    const connection = await this.link.findConnection();
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
    const connection = await this.link.getConnection();
    return { connection, waitedMs: clock.now() - calledAtMs };
  }

  private async connect(
    listener: AttemptListener<SupervisorConnection>,
    signal: AbortSignal,
  ): Promise<SupervisorConnection> {
    const { directory, supervisorCommand, idleMs = 30_000, clock } = this.options;
    const { onAccepted, onAnswered, onClosed: onClose } = listener;
    const onEvent = (event: ContainerEvent): void => this.onEvent(event);
    const open = async (): Promise<SupervisorConnection> => {
      const wait = { onAccepted, signal };
      try {
        return await SupervisorConnection.open(
          directory,
          this.settings,
          { onEvent, onClose },
          wait,
        );
      } catch (reason) {
        onClose();
        throw reason;
      }
    };
    const program = toSupervisorProgram(directory, supervisorCommand, idleMs);
    const connection = await connectOrStart(open, program, clock, signal);
    onAnswered(connection);
    this.monitor.noteAnswer();
    if (!connection.isOpen) throw createDisconnectedError();
    this.pipeHolder.applyAll((await connection.request({ type: 'list' })).items);
    this.supervisorCapabilities = connection.hello.capabilities ?? [];
    return connection;
  }

  /**
   * Waits until all output of a container is in its log files. Repeats the request when the
   * supervisor is replaced, so that followers of the log continue. Has no limit, because the answer
   * comes only after the end of the container.
   */
  private async waitUntilDrained(containerId: ContainerId): Promise<void> {
    for (;;) {
      try {
        const connection = await this.link.waitForConnection();
        return await connection.waitUntilDrained(containerId);
      } catch (reason) {
        if (errorKindOf(reason) === 'notFound') return; // a removed container writes no output
        if (errorKindOf(reason) !== 'unavailable' || this.link.signal.aborted) throw reason;
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
