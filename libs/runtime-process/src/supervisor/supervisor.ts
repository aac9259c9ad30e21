import { uptime } from 'node:os';
import {
  CloudlessError,
  errorFields,
  randomHex,
  type Clock,
  type ContainerId,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import type {
  ContainerEvent,
  ContainerLease,
  ContainerRequest,
  ContainerStatus,
} from '@cloudless/runtime';
import { readBootId } from '@cloudless/app-kit/background';
import type { Cgroup } from '../system/cgroups.js';
import { killMarkedProcesses } from '../system/marked-processes.js';
import { readProcesses } from '../system/process-tree.js';
import {
  DEFAULT_LOG_SETTINGS,
  LEASES,
  type ClientMessage,
  type SupervisorSettings,
} from '../wire/messages.js';
import { deductRenewalWait, deductWait } from '../wire/request-wait.js';
import { deductStartWait } from '../wire/start-lease.js';
import { adoptContainers } from './container/adopt-containers.js';
import { layout } from './container/container-paths.js';
import type { CommandOptions, CommandProcess } from './command/command-process.js';
import { ContainerCgroups } from './container/container-cgroups.js';
import { ExecCommand, MAX_COMMANDS, createTooManyExecsError } from './command/exec-command.js';
import { FifoPool } from './container/fifo-pool.js';
import { checkContainerId, checkRequest, withVariables } from './process/launch-command.js';
import type { ShellTools } from './process/launch-script.js';
import { LeaseGuard, type GuardedLease } from './lease/lease-guard.js';
import type { ManagedContainer } from './container/managed-container.js';
import { PortPool } from './container/port-pool.js';
import type { ProcessResolvers } from './resolver/process-resolvers.js';
import { startContainer } from './container/start-container.js';
import { TerminalCommand } from './command/terminal-command.js';

/** Arguments of {@link Supervisor}. */
export interface SupervisorDeps {
  /** Absolute path of the private directory, mode 0700. */
  readonly directory: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /**
   * Programs that the guards run. Undefined on a machine without them: processes then have no guard,
   * and containers cannot have leases.
   */
  readonly tools?: ShellTools | undefined;
  /** Group that contains the groups of all containers; undefined where there are no cgroups. */
  readonly cgroup?: Cgroup | undefined;
  /** Gives processes a resolv.conf of their own. Default: processes read that of the machine. */
  readonly resolvers?: ProcessResolvers | undefined;
}

/**
 * Interval of the checks of processes whose end Node.js does not report: adopted processes, and
 * those whose guard was killed.
 */
const UNREPORTED_POLL_MS = 100;
/**
 * Interval of the checks of processes under a guard. A guard that is stopped by a signal does not
 * report the end of its process. Also the interval of the checks of their resolv.conf.
 */
const GUARDED_POLL_MS = 3_000;

/** Manages all containers of one directory: starts, stops, leases, commands and removal. */
export class Supervisor {
  private readonly containers = new Map<string, ManagedContainer>();
  /** Starts that have not been answered yet, by container id. */
  private readonly starting = new Map<string, Promise<ContainerStatus>>();
  private readonly listeners = new Set<(event: ContainerEvent) => void>();
  private readonly ports: PortPool;
  private readonly fifos: FifoPool;
  private readonly bootId = readBootId();
  private settings: SupervisorSettings | undefined;
  private commandCount = 0;
  private unreportedPollTimer: Timer | undefined;
  private guardedPollTimer: Timer | undefined;
  /**
   * Ids of ended containers and commands. Each of their processes carries the id in its environment
   * as a mark, by which the next sweep finds and kills the remaining processes.
   */
  private readonly marksToSweep = new Set<string>();
  private readonly cgroups: ContainerCgroups;
  /** Undefined without `tools`; containers then cannot have leases. */
  private readonly leaseGuard: LeaseGuard | undefined;
  /** Leases of containers that are being started. */
  private readonly startingLeases = new Map<string, GuardedLease>();
  private isStopping = false;

  constructor(private readonly deps: SupervisorDeps) {
    const { directory, tools, cgroup, clock, log } = deps;
    const onFault = (reason: unknown): void =>
      log.error('lease guard not started', errorFields(reason));
    this.leaseGuard = tools === undefined ? undefined : new LeaseGuard(directory, tools, onFault);
    this.cgroups = new ContainerCgroups(cgroup, clock, log);
    this.ports = new PortPool(deps.random);
    this.fifos = new FifoPool(layout.fifos(deps.directory), () => randomHex(deps.random, 8));
  }

  /** Adopts the containers of an earlier supervisor. Call it once, before any other method. */
  async open(): Promise<void> {
    const { directory, clock, log } = this.deps;
    await this.fifos.prepare();
    const onExit = (container: ManagedContainer): void => this.onContainerExited(container);
    const removeGroup = (group: Cgroup): void => this.cgroups.killAndRemove(group);
    const { bootId } = this;
    const adopted = adoptContainers({
      directory,
      clock,
      log,
      bootId,
      settings: DEFAULT_LOG_SETTINGS, // no client has sent its settings yet
      onExit,
      removeGroup,
    });
    for (const container of adopted) {
      this.containers.set(container.status.containerId, container);
      if (container.isRunning) await this.ports.reserve(container.ports);
    }
    this.cgroups.removeOthers(
      (containerId) => this.containers.get(containerId)?.isRunning === true,
    );
    this.tryUpdateLeaseGuard();
    this.pollUnreported();
    this.pollGuarded();
  }

  /** True when processes can have DNS settings of their own. */
  get hasProcessDns(): boolean {
    return this.deps.resolvers?.mountTools !== undefined;
  }

  /** Sets the settings for containers that are started from now on. */
  configure(settings: SupervisorSettings): void {
    this.settings = settings;
  }

  /**
   * True when containers can have leases, which a lease guard enforces while this supervisor is
   * dead.
   */
  get hasLeases(): boolean {
    return this.leaseGuard !== undefined;
  }

  /** True while no container runs or is being started. */
  get isIdle(): boolean {
    return (
      this.starting.size === 0 && [...this.containers.values()].every(({ isRunning }) => !isRunning)
    );
  }

  /**
   * Adds a listener for each start and exit of a container.
   * @returns A function that removes the listener.
   */
  addListener(listener: (event: ContainerEvent) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Returns the status of all containers, including ended containers that were not removed. */
  list(): readonly ContainerStatus[] {
    return [...this.containers.values()].map(({ status }) => status);
  }

  /** @throws kind `notFound` when there is no such container, `invalid` for a malformed id. */
  requireContainer(containerId: ContainerId): ManagedContainer {
    checkContainerId(containerId);
    const container = this.containers.get(containerId);
    if (container === undefined)
      throw new CloudlessError('notFound', `no container ${containerId}`);
    return container;
  }

  /**
   * Starts a container.
   * @param waitedMs - Milliseconds since the lease began to count. Absent when the client is of an
   *   earlier version: the lease then counts from now on, even when it is 0.
   * @throws kind `unavailable` before `configure`, after `stopAll` and when the lease has ended
   *   before the process is started; `exists` when the id is in use, or the error of the failed
   *   start.
   */
  async start(requested: ContainerRequest, waitedMs?: number): Promise<ContainerStatus> {
    const { settings } = this;
    if (settings === undefined || this.isStopping)
      throw new CloudlessError(
        'unavailable',
        'the supervisor is shutting down, or no client has configured it yet',
      );
    checkRequest(requested);
    const { containerId } = requested;
    if (this.containers.has(containerId) || this.starting.has(containerId))
      throw new CloudlessError('exists', `container ${containerId} already exists`);
    const request = deductStartWait(requested, waitedMs);
    const started = this.allocateAndStart(request, settings);
    this.starting.set(containerId, started);
    try {
      return await started;
    } finally {
      this.starting.delete(containerId);
    }
  }

  /**
   * Renews the leases of running containers; other ids are ignored.
   * @param leases - Null removes the lease of a container.
   * @param waitedMs - Milliseconds since the leases began to count. Default 0.
   * @throws The first failure, after all containers were tried; kind `unavailable` when a lease has
   *   ended before this call: its container keeps its earlier lease.
   */
  renew(leases: readonly (readonly [ContainerId, ContainerLease | null])[], waitedMs = 0): void {
    const failures: unknown[] = [];
    for (const [containerId, lease] of leases) {
      try {
        const container = this.containers.get(containerId);
        if (container?.isRunning !== true) continue;
        container.renew(lease === null ? undefined : deductRenewalWait(lease, waitedMs));
      } catch (reason) {
        failures.push(reason);
      }
    }
    try {
      this.updateLeaseGuard();
    } catch (reason) {
      failures.push(reason);
    }
    if (failures.length > 0) throw failures[0];
  }

  /**
   * Removes an ended container; does nothing when there is no such container.
   * @throws kind `precondition` while the container runs.
   */
  async remove(containerId: ContainerId): Promise<void> {
    checkContainerId(containerId);
    this.containers.get(containerId)?.remove();
    this.containers.delete(containerId);
  }

  /**
   * Starts a command, whose output and end the listener receives. Call `release` when the command
   * has ended.
   * @throws The errors of {@link Supervisor.requireContainer}; kind `precondition` when the
   *   container has ended, `exhausted` when {@link MAX_COMMANDS} commands run; or the error of the
   *   failed start.
   */
  async exec(
    {
      containerId,
      command: commandLine,
      env,
      tty,
      hasInput,
    }: Extract<ClientMessage, { type: 'exec' }>,
    listener: Pick<CommandOptions, 'onOutput' | 'onInputDrained' | 'onEnd'>,
  ): Promise<{ readonly command: CommandProcess; readonly release: () => void }> {
    const container = this.requireContainer(containerId);
    const containerContext = container.requireLaunchContext();
    const context = { ...containerContext, env: withVariables(containerContext.env, env ?? {}) };
    if (this.commandCount >= MAX_COMMANDS) throw createTooManyExecsError();
    this.commandCount += 1;
    const { directory, clock, random } = this.deps;
    const execId = randomHex(random, 8);
    try {
      const { tools, resolvers } = this.deps;
      const join = container.createCommandJoin(execId, tools, resolvers?.mountTools);
      const commonOptions = { ...listener, command: commandLine, clock, execId, context, join };
      const command =
        tty === undefined
          ? await ExecCommand.start({ ...commonOptions, directory, fifos: this.fifos, hasInput })
          : TerminalCommand.start({ ...commonOptions, tty });
      container.dependents.add(command);
      if (!container.isRunning) command.kill();
      const release = (): void => {
        if (!container.dependents.delete(command)) return;
        this.commandCount -= 1;
        this.scheduleSweep(execId);
      };
      return { command, release };
    } catch (reason) {
      this.commandCount -= 1;
      throw reason;
    }
  }

  /** Sets a timer on the supervisor's clock. */
  setTimer(delayMs: number, action: () => void): Timer {
    return this.deps.clock.setTimer(delayMs, action);
  }

  /**
   * Refuses further starts, and stops all containers. Resolves when all processes are killed and all
   * output is in the log files.
   */
  async stopAll(graceMs: number): Promise<void> {
    this.isStopping = true;
    await Promise.allSettled(this.starting.values());
    await Promise.all([...this.containers.values()].map((container) => container.stop(graceMs)));
    await Promise.all([...this.containers.values()].map(({ drained }) => drained));
    killMarkedProcesses(({ containerId }) => this.containers.has(containerId));
    this.leaseGuard?.close();
    await this.cgroups.close();
  }

  /** Closes files and timers. Running processes continue, and the next supervisor adopts them. */
  close(): void {
    this.isStopping = true;
    this.unreportedPollTimer?.cancel();
    this.guardedPollTimer?.cancel();
    for (const container of this.containers.values()) container.close();
    if (this.isIdle) this.leaseGuard?.close();
    if (this.isIdle) this.cgroups.removeParent();
  }

  private async allocateAndStart(
    request: ContainerRequest,
    settings: SupervisorSettings,
  ): Promise<ContainerStatus> {
    const { directory, clock, log, tools, resolvers } = this.deps;
    const acceptedAtMs = clock.now();
    const ports = await this.ports.allocate(request.ports, settings);
    const { containerId } = request;
    const cgroup = this.cgroups.getGroup(containerId);
    try {
      this.recordStartingLease(request, cgroup, acceptedAtMs);
      const container = await startContainer(request, ports, {
        directory,
        clock,
        acceptedAtMs,
        log,
        fifos: this.fifos,
        bootId: this.bootId,
        settings,
        tools,
        cgroup,
        resolvers,
        onExit: (ended) => this.onContainerExited(ended),
        onGuardLost: () => this.pollUnreported(),
      });
      this.containers.set(containerId, container);
      this.startingLeases.delete(containerId);
      // When the leases cannot be written, the lease from before the start stays in force. It
      // identifies the processes by the cgroup, or else by the container id in their environment.
      if (request.lease !== undefined) this.tryUpdateLeaseGuard();
      const { status } = container;
      this.notifyListeners({ kind: 'started', status });
      return status;
    } catch (reason) {
      this.ports.release(ports);
      this.cgroups.killAndRemove(cgroup);
      if (this.startingLeases.delete(containerId)) this.tryUpdateLeaseGuard();
      throw reason;
    }
  }

  /**
   * Writes the lease of a container before its process is started, so that the lease guard can end
   * the process from its first moment.
   * @throws kind `unimplemented` when containers cannot have leases here, or the errors of
   *   {@link LeaseGuard.update}.
   */
  private recordStartingLease(
    { containerId, lease: acceptedLease }: ContainerRequest,
    cgroup: Cgroup | undefined,
    acceptedAtMs: number,
  ): void {
    if (acceptedLease === undefined) return;
    if (this.leaseGuard === undefined)
      throw new CloudlessError('unimplemented', `lease: this node lacks the capability ${LEASES}`);
    const lease = deductWait(acceptedLease, this.deps.clock.now() - acceptedAtMs);
    const endsAtUptimeSeconds = uptime() + lease.leaseMs / 1_000;
    this.startingLeases.set(containerId, {
      ...{ containerId, endsAtUptimeSeconds, graceMs: lease.graceMs, main: undefined },
      cgroup: cgroup?.folder,
    });
    this.updateLeaseGuard();
  }

  /**
   * Writes all leases for the lease guard.
   * @throws The errors of {@link LeaseGuard.update}.
   */
  private updateLeaseGuard(): void {
    const runningLeases = [...this.containers.values()].flatMap(
      ({ guardedLease }) => guardedLease ?? [],
    );
    this.leaseGuard?.update([...runningLeases, ...this.startingLeases.values()]);
  }

  /**
   * Writes all leases for the lease guard, but only logs a failure, because a full disk must not
   * stop the caller. The earlier leases then stay in force.
   */
  private tryUpdateLeaseGuard(): void {
    try {
      this.updateLeaseGuard();
    } catch (reason) {
      this.deps.log.warn('leases not written for the lease guard', errorFields(reason));
    }
  }

  private onContainerExited(container: ManagedContainer): void {
    const { status } = container;
    this.notifyListeners({ kind: 'exited', status });
    this.scheduleSweep(status.containerId);
    this.cgroups.killAndRemove(container.main?.cgroup);
    this.ports.release(container.ports);
    this.tryUpdateLeaseGuard();
  }

  /**
   * Schedules the kill of the processes that left the process group of an ended container or
   * command. One scan of the process table serves all containers and commands that ended meanwhile.
   * @param mark - Id of the container or command.
   */
  private scheduleSweep(mark: string): void {
    this.marksToSweep.add(mark);
    if (this.marksToSweep.size > 1) return;
    this.deps.clock.setTimer(SWEEP_DELAY_MS, () => {
      const marks = new Set(this.marksToSweep);
      this.marksToSweep.clear();
      killMarkedProcesses(
        ({ containerId, execId }) =>
          marks.has(containerId) || (execId !== undefined && marks.has(execId)),
      );
      // Processes that cleared their environment have no mark. They are found by the cgroup of the
      // container, or else as descendants and session members of its main process.
      const ended = [...marks].flatMap((each) => this.containers.get(each) ?? []);
      if (ended.length === 0) return;
      const processes = ended.some(({ main }) => main?.cgroup === undefined) ? readProcesses() : [];
      for (const container of ended) container.killRelatives(processes);
    });
  }

  private pollUnreported(): void {
    this.unreportedPollTimer?.cancel();
    const polled = [...this.containers.values()].filter(
      ({ isRunning, main }) => isRunning && main?.mustPoll === true,
    );
    for (const container of polled) container.checkEnded();
    this.unreportedPollTimer =
      polled.length === 0
        ? undefined
        : this.deps.clock.setTimer(UNREPORTED_POLL_MS, () => this.pollUnreported());
  }

  private pollGuarded(): void {
    this.guardedPollTimer = this.deps.clock.setTimer(GUARDED_POLL_MS, () => this.pollGuarded());
    for (const container of this.containers.values()) container.checkEnded();
    void this.deps.resolvers?.check(() =>
      [...this.containers.values()].flatMap(({ resolverHolder }) => resolverHolder ?? []),
    );
  }

  private notifyListeners(event: ContainerEvent): void {
    for (const listener of [...this.listeners]) listener(event);
  }
}

/**
 * Delay of the sweep: long enough to collect the ends when many containers stop at once, and far
 * shorter than the minute within which all their processes must be gone.
 */
const SWEEP_DELAY_MS = 20;
