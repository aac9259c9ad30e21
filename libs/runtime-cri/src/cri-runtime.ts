import { rm, rmdir } from 'node:fs/promises';
import { uptime } from 'node:os';
import path from 'node:path';
import {
  CloudlessError,
  errorFields,
  sleep,
  type ContainerId,
  type StopSignal,
} from '@cloudless/base';
import {
  EGRESS_CAPABILITY,
  flattenBatches,
  HEALTHY,
  SIGNAL_CAPABILITY,
  withStartFailure,
  type ContainerEvent,
  type ContainerLease,
  type ContainerRequest,
  type ContainerRuntime,
  type ContainerSignal,
  type ContainerStatus,
  type EgressRule,
  type ExecEvent,
  type ExecRequest,
  type LogBatch,
  type LogLine,
  type LogRequest,
  type RuntimeHealth,
  type StartProgress,
} from '@cloudless/runtime';
import { makeDirectorySync } from '@cloudless/app-kit';
import { createClosedError, CriClient } from './client/cri-client.js';
import {
  checkOptions,
  createImageCollector,
  createVolumeStore,
  type CriRuntimeOptions,
} from './cri-runtime-options.js';
import { removeAllContainers } from './containers/remove-all-containers.js';
import { Images } from './images/images.js';
import type { ImageCollector } from './images/image-collector.js';
import { ContainerInventory } from './containers/inventory.js';
import { isContainerId } from './containers/labels.js';
import {
  checkRequest,
  createLeasesUnimplementedError,
  createSignalsUnimplementedError,
} from './containers/request-config.js';
import { Sandboxes } from './containers/sandboxes.js';
import { Starter } from './containers/starter.js';
import { Stopper } from './containers/stopper.js';
import { sweep } from './containers/sweep.js';
import { parsePid } from './containers/to-status.js';
import { Watcher } from './containers/watcher.js';
import { CommandRecords } from './exec/command-records.js';
import { execCommand } from './exec/exec-command.js';
import { createEgressUnimplementedError, EgressFilter } from './egress/egress-filter.js';
import { isInOtherNamespace, readProcess, signalProcess } from './system/host-processes.js';
import { KeyedMutex } from './system/keyed-mutex.js';
import { ContainerLogs } from './logs/container-logs.js';
import { GroupVolumes } from './volumes/group-volumes.js';
import { PeriodicTasks } from './periodic-tasks.js';
import { CapabilityCache } from './probe/capability-cache.js';

/** Default of `maxPids`: more than common servers have, and few enough to stop a fork bomb. */
const DEFAULT_MAX_PIDS = 4_096;
/** Default of `logFileBytes`, as in the kubelet. */
const DEFAULT_LOG_FILE_BYTES = 10 * 1024 * 1024;
/** Interval of sweeps, capability refreshes and, by default, image collections. */
const TASK_INTERVAL_MS = 60_000;
/** Default time limit of {@link CriRuntime.shutdown}. */
const SHUTDOWN_LIMIT_MS = 60_000;
/** Longest time for which the first sweep delays {@link openCriRuntime}. */
const FIRST_SWEEP_LIMIT_MS = 5_000;
/** Name of the directory for command records, in the log directory. */
const COMMANDS = 'commands';

/** Runs the containers of one owner on one container runtime. */
export interface CriRuntime extends ContainerRuntime {
  /**
   * Kills and removes everything of this owner in any state: containers, sandboxes with their
   * networks, logs, empty directories. Closes the runtime afterwards. Named volumes and images
   * stay.
   * @param limitMs - Time limit for the removal. Default 60 s.
   * @throws kind `deadline` with the number of remaining containers and the last failure.
   */
  shutdown(limitMs?: number): Promise<void>;
}

/**
 * Connects to a container runtime and reads the containers of this owner. The caller must close the
 * returned runtime, by `close` or `shutdown`.
 * @throws kind `unavailable` when no runtime answers at the socket, `unimplemented` when the
 *   runtime has another version of the interface, `invalid` for invalid options.
 */
export async function openCriRuntime(options: CriRuntimeOptions): Promise<CriRuntime> {
  checkOptions(options);
  makeDirectorySync(options.logDirectory, 0o755);
  const runtime = new OpenCriRuntime(options);
  try {
    await runtime.open();
    return runtime;
  } catch (reason) {
    await runtime.close();
    throw reason;
  }
}

/**
 * A {@link CriRuntime}. The constructor connects its parts; {@link OpenCriRuntime.open} begins
 * work.
 */
class OpenCriRuntime implements CriRuntime {
  readonly name = 'cri';
  private readonly client: CriClient;
  private readonly inventory: ContainerInventory;
  private readonly sandboxes: Sandboxes;
  private readonly images: Images;
  private readonly collector: ImageCollector;
  private readonly volumes: GroupVolumes;
  private readonly starter: Starter;
  private readonly stopper: Stopper;
  private readonly watcher: Watcher;
  private readonly egressFilter = new EgressFilter();
  private readonly execLocks = new KeyedMutex();
  private readonly commandRecords: CommandRecords;
  private readonly containerLogs: ContainerLogs;
  private readonly capabilityCache: CapabilityCache;
  private readonly periodicTasks: PeriodicTasks;

  constructor(private readonly options: CriRuntimeOptions) {
    const { socketPath, owner, clock, log } = options;
    const client = (this.client = new CriClient({
      socketPath,
      clock,
      onReconnected: () => void this.capabilityCache.refresh(),
    }));
    this.capabilityCache = new CapabilityCache(client, options, log, options.onCapabilities);
    this.periodicTasks = new PeriodicTasks(clock, log);
    const bootedAtMs = clock.wallTime() - uptime() * 1_000;
    const getLogDirectory = (id: ContainerId): string => this.getLogDirectory(id);
    const inventory = (this.inventory = new ContainerInventory({
      client,
      owner,
      log,
      bootedAtMs,
      wallTime: () => clock.wallTime(),
    }));
    const sandboxes = (this.sandboxes = new Sandboxes(client, owner, getLogDirectory));
    this.collector = createImageCollector(client, options);
    const images = (this.images = new Images({
      client,
      clock,
      record: () => this.collector.recordPull(),
    }));
    const volumes = (this.volumes = new GroupVolumes({
      store: createVolumeStore(options),
      inventory,
      log,
    }));
    const { maxPids = DEFAULT_MAX_PIDS, processPorts } = options;
    const capabilities = (): readonly string[] => this.capabilityCache.list();
    this.starter = new Starter({
      client,
      inventory,
      sandboxes,
      images,
      volumes,
      egressFilter: this.egressFilter,
      owner,
      capabilities,
      maxPids,
      processPorts,
      getLogDirectory,
      clock,
      log,
    });
    this.stopper = new Stopper(client, inventory, clock);
    const watcher = (this.watcher = new Watcher(client, inventory, clock, log));
    const {
      logDirectory: directory,
      logFiles: files = 4,
      logFileBytes: fileBytes = DEFAULT_LOG_FILE_BYTES,
    } = options;
    this.commandRecords = new CommandRecords(path.join(directory, COMMANDS), clock);
    this.containerLogs = new ContainerLogs({
      client,
      inventory,
      watcher,
      directory,
      files,
      fileBytes,
      clock,
      log,
    });
  }

  async open(): Promise<void> {
    await this.client.version();
    await this.capabilityCache.load();
    await this.inventory.refreshAll();
    await this.runFirstSweep();
    void this.commandRecords.endAll().then((count) => {
      if (count > 0) this.options.log.info('commands of an earlier agent were ended', { count });
    });
    this.periodicTasks.repeat(TASK_INTERVAL_MS, () => this.sweep());
    this.periodicTasks.repeat(TASK_INTERVAL_MS, () => this.capabilityCache.refresh());
    this.periodicTasks.repeat(this.options.imageCollection?.checkMs ?? TASK_INTERVAL_MS, () =>
      this.collector.collect(this.images),
    );
    this.periodicTasks.repeat(this.options.logCheckMs ?? 1_000, () =>
      this.containerLogs.rotateAll(),
    );
  }

  async version(): Promise<string> {
    const { runtimeName, runtimeVersion } = await this.client.version();
    return `${runtimeName} ${runtimeVersion}`;
  }

  capabilities(): readonly string[] {
    return this.capabilityCache.list();
  }

  async prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    checkRequest(request, this.capabilityCache.list());
    await this.images.prepare(request, progress, signal);
  }

  start(request: ContainerRequest): Promise<ContainerStatus> {
    return this.starter.start(request);
  }

  stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    const stopped = this.stopper.stop(containerId, graceMs);
    this.watcher.wake();
    return stopped;
  }

  async signal(containerId: ContainerId, signal: ContainerSignal): Promise<void> {
    if (!this.capabilities().includes(SIGNAL_CAPABILITY)) throw createSignalsUnimplementedError();
    const { runtimeId, status } = await this.inventory.refreshAndFind(containerId);
    const { info } = await this.inventory.readStatus(runtimeId);
    const pid = status.phase === 'running' ? parsePid(info) : undefined;
    const main = pid === undefined ? undefined : readProcess(pid);
    if (main === undefined)
      throw new CloudlessError('precondition', `container ${containerId} is not running`);
    // Another process has this id when the container runtime counts processes in a namespace of its
    // own.
    if (!isInOtherNamespace(main.pid)) throw createSignalsUnimplementedError();
    signalProcess(main, signal);
  }

  async limitEgress(containerId: ContainerId, rules: readonly EgressRule[]): Promise<void> {
    if (!this.capabilities().includes(EGRESS_CAPABILITY)) throw createEgressUnimplementedError();
    const { status, recorded } = await this.inventory.refreshAndFind(containerId);
    if (status.phase !== 'running')
      throw new CloudlessError('precondition', `container ${containerId} is not running`);
    if (recorded.filteredSandbox === undefined)
      throw new CloudlessError(
        'precondition',
        `container ${containerId} was started without network.egress: start a new container`,
      );
    await this.egressFilter.apply(recorded.filteredSandbox, rules);
  }

  async renew(_leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    throw createLeasesUnimplementedError();
  }

  async remove(containerId: ContainerId): Promise<void> {
    if (this.inventory.find(containerId)?.status.phase !== 'exited')
      await this.inventory.refreshAll();
    const found = this.inventory.find(containerId);
    if (found?.status.phase === 'running') {
      throw new CloudlessError(
        'precondition',
        `container ${containerId} is running: stop it first`,
      );
    }
    // The id becomes part of a path below the log directory: no container has any other id.
    if (!isContainerId(containerId)) return;
    await this.sandboxes.removeAllOf(containerId);
    if (found === undefined) return this.inventory.refreshAll();
    this.inventory.drop(found);
    if (found.recorded.group !== undefined) await this.volumes.release(found.recorded.group);
  }

  async list(): Promise<readonly ContainerStatus[]> {
    await this.inventory.refreshAll();
    return this.inventory.list().map(({ status }) => status);
  }

  health(): RuntimeHealth {
    return {
      ...HEALTHY,
      containersSilentMs: this.client.unansweredMs,
      withoutProcess: this.inventory.findWithoutProcess(),
    };
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    const events = this.inventory.events(signal);
    this.watcher.wake();
    return events;
  }

  logs(containerId: ContainerId, request: LogRequest, signal: StopSignal): AsyncIterable<LogLine> {
    return flattenBatches(this.logBatches(containerId, request, signal));
  }

  logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncIterable<LogBatch> {
    return this.containerLogs.read(containerId, request, signal);
  }

  exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncGenerator<ExecEvent> {
    return withStartFailure(containerId, request, this.streamExec(containerId, request, signal));
  }

  private async *streamExec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncGenerator<ExecEvent> {
    const { runtimeId, status } = await this.inventory.refreshAndFind(containerId);
    if (status.phase !== 'running' || status.pid === undefined) {
      throw new CloudlessError('precondition', `container ${containerId} is not running`);
    }
    const { client, execLocks, commandRecords } = this;
    const { clock, log } = this.options;
    yield* execCommand({
      client,
      clock,
      log,
      locks: execLocks,
      records: commandRecords,
      runtimeId,
      mainPid: status.pid,
      request,
      signal,
    });
  }

  async shutdown(limitMs = SHUTDOWN_LIMIT_MS): Promise<void> {
    const { client, sandboxes, starter, inventory, volumes, commandRecords } = this;
    const { clock, log, logDirectory } = this.options;
    try {
      this.periodicTasks.end();
      await removeAllContainers({ sandboxes, starts: starter.close(), clock, log, limitMs });
      await commandRecords.endAll();
      // The inventory still lists the removed containers, whose empty directories would be kept.
      await inventory.refreshAll();
      await volumes.sweep(Number.POSITIVE_INFINITY);
      await rm(path.join(logDirectory, COMMANDS), { recursive: true, force: true });
      // Fails when another program keeps files in the directory; the files then stay.
      await rmdir(logDirectory).catch(() => undefined);
    } finally {
      if (!client.closed.aborted) await this.close();
    }
  }

  async close(): Promise<void> {
    this.client.close();
    this.watcher.close();
    this.periodicTasks.end();
    this.inventory.fail(createClosedError());
  }

  private getLogDirectory(containerId: ContainerId): string {
    return path.join(this.options.logDirectory, containerId);
  }

  /**
   * Starts the first sweep and waits for its end, at most {@link FIRST_SWEEP_LIMIT_MS}: remains
   * that cannot be removed, for example a stuck network, must not delay the agent. The sweep
   * continues after the limit.
   */
  private async runFirstSweep(): Promise<void> {
    const { clock, log } = this.options;
    const limit = new AbortController();
    const sweep = this.sweep().finally(() => limit.abort());
    const timeLimit = sleep(clock, FIRST_SWEEP_LIMIT_MS, limit.signal).then(
      () => log.warn('remains of earlier containers are still being removed'),
      () => undefined,
    );
    await Promise.race([sweep, timeLimit]);
    sweep.catch((reason: unknown) => log.warn('sweep failed', errorFields(reason)));
  }

  private async sweep(): Promise<void> {
    const { inventory, sandboxes, starter } = this;
    const { clock, log, orphanAgeMs = 60_000, logDirectory: logRoot } = this.options;
    const isStarting = (id: ContainerId): boolean => starter.isStarting(id);
    const nowMs = clock.wallTime();
    await sweep({ inventory, sandboxes, isStarting, logRoot, log, orphanAgeMs, nowMs });
    await this.volumes.sweep(nowMs - orphanAgeMs);
  }
}
