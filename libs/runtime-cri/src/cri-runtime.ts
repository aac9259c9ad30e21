import { mkdirSync } from 'node:fs';
import { uptime } from 'node:os';
import path from 'node:path';
import {
  CloudlessError,
  errorFields,
  errorKindOf,
  type Clock,
  type ContainerId,
  type Log,
  type StopSignal,
  type Timer,
} from '@cloudless/base';
import type {
  ContainerEvent,
  ContainerLease,
  ContainerRequest,
  ContainerRuntime,
  ContainerStatus,
  ExecEvent,
  ExecRequest,
  LogLine,
  LogRequest,
} from '@cloudless/runtime';
import { closedError, CriClient } from './client/cri-client.js';
import { Images } from './containers/images.js';
import { Inventory } from './containers/inventory.js';
import type { Owner } from './containers/labels.js';
import { leasesUnimplemented } from './containers/request-config.js';
import { Sandboxes } from './containers/sandboxes.js';
import { Starter } from './containers/starter.js';
import { Stopper } from './containers/stopper.js';
import { sweep } from './containers/sweep.js';
import { Watcher } from './containers/watcher.js';
import { CommandRecords } from './exec/command-records.js';
import { execCommand } from './exec/exec-command.js';
import { Turns } from './exec/turns.js';
import { ContainerLogs } from './logs/container-logs.js';

/** Needs of {@link openCriRuntime}. */
export interface CriRuntimeOptions {
  /** Absolute path of the runtime's Unix socket, as /run/containerd/containerd.sock. */
  readonly socketPath: string;
  /** Whose containers these are; on every one of them as labels. What carries others is never touched. */
  readonly owner: Owner;
  /** Absolute path of the folder for logs; made when missing. Nobody else may keep anything there. */
  readonly logDirectory: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Log files kept per container, 2 or more, and the size in bytes at which a new one begins. Default 4 of 10 MiB. */
  readonly logFiles?: number;
  readonly logFileBytes?: number;
  /** How often sizes of logs are looked at. Default 1 s. */
  readonly logCheckMs?: number;
  /** Sandboxes without a container are removed once they are this old. Default 60 s. */
  readonly orphanAgeMs?: number;
}

const DEFAULT_LOG_FILE_BYTES = 10 * 1024 * 1024;
const SWEEP_MS = 60_000;
/** Below the folder for logs. */
const COMMANDS = 'commands';

/**
 * Opens a container runtime: says hello, and finds what runs there and is ours.
 * @throws kind `unavailable` when nobody answers at the socket, `unimplemented` when it speaks another interface, `invalid`
 *   for wrong options.
 */
export async function openCriRuntime(options: CriRuntimeOptions): Promise<ContainerRuntime> {
  checkOptions(options);
  mkdirSync(options.logDirectory, { recursive: true, mode: 0o755 });
  const runtime = new CriRuntime(options);
  try {
    await runtime.open();
    return runtime;
  } catch (reason) {
    await runtime.close();
    throw reason;
  }
}

function checkOptions({ socketPath, logDirectory, owner, logFiles = 2, logFileBytes = 1 }: CriRuntimeOptions): void {
  const wrong = (message: string): CloudlessError => new CloudlessError('invalid', message);
  if (!path.isAbsolute(socketPath)) throw wrong('socketPath: must be an absolute path');
  if (!path.isAbsolute(logDirectory)) throw wrong('logDirectory: must be an absolute path');
  if (owner.cluster === '' || owner.node === '') throw wrong('owner: cluster and node must not be empty');
  if (!(logFiles >= 2 && logFileBytes >= 1)) throw wrong('logFiles: must be 2 or more, of 1 byte or more');
}

class CriRuntime implements ContainerRuntime {
  readonly name = 'cri';
  private readonly client: CriClient;
  private readonly inventory: Inventory;
  private readonly sandboxes: Sandboxes;
  private readonly images: Images;
  private readonly starter: Starter;
  private readonly stopper: Stopper;
  private readonly watcher: Watcher;
  private readonly turns = new Turns();
  private readonly records: CommandRecords;
  private readonly containerLogs: ContainerLogs;
  private readonly timers = new Set<Timer>();

  constructor(private readonly options: CriRuntimeOptions) {
    const { socketPath, owner, clock, log } = options;
    const client = (this.client = new CriClient({ socketPath, clock }));
    const bootedAtMs = clock.wallTime() - uptime() * 1_000;
    const logDirectoryOf = (id: ContainerId): string => this.logDirectoryOf(id);
    const inventory = (this.inventory = new Inventory({ client, owner, log, bootedAtMs, wallTime: () => clock.wallTime() }));
    const sandboxes = (this.sandboxes = new Sandboxes(client, owner, logDirectoryOf));
    const images = (this.images = new Images(client));
    this.starter = new Starter({ client, inventory, sandboxes, images, owner, logDirectoryOf, log });
    this.stopper = new Stopper(client, inventory, clock);
    const watcher = (this.watcher = new Watcher(client, inventory, clock, log));
    const { logDirectory: directory, logFiles: files = 4, logFileBytes: fileBytes = DEFAULT_LOG_FILE_BYTES } = options;
    this.records = new CommandRecords(path.join(directory, COMMANDS), clock);
    this.containerLogs = new ContainerLogs({ client, inventory, watcher, directory, files, fileBytes, clock, log });
  }

  async open(): Promise<void> {
    await this.client.version();
    await this.inventory.look();
    await this.sweep();
    void this.records.endAll().then((count) => {
      if (count > 0) this.options.log.info('commands of callers that have gone were ended', { count });
    });
    this.repeat(SWEEP_MS, () => this.sweep());
    this.repeat(this.options.logCheckMs ?? 1_000, () => this.containerLogs.rotateAll());
  }

  async version(): Promise<string> {
    const { runtimeName, runtimeVersion } = await this.client.version();
    return `${runtimeName} ${runtimeVersion}`;
  }

  capabilities(): readonly string[] {
    return ['runtime.cri', 'limits.cpu', 'limits.memory', 'exec.tty'];
  }

  async prepare(request: ContainerRequest): Promise<void> {
    await this.images.ensure(request.image ?? '');
  }

  start(request: ContainerRequest): Promise<ContainerStatus> {
    return this.starter.start(request);
  }

  stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    const stopped = this.stopper.stop(containerId, graceMs);
    this.watcher.wake();
    return stopped;
  }

  async renew(_leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    throw leasesUnimplemented();
  }

  async remove(containerId: ContainerId): Promise<void> {
    await this.inventory.look();
    if (this.inventory.find(containerId)?.status.phase === 'running') {
      throw new CloudlessError('precondition', `container ${containerId} runs: stop it first`);
    }
    if (!/^[0-9a-f]{64}$/.test(containerId)) return;
    await this.sandboxes.removeAllOf(containerId);
    await this.inventory.look();
  }

  async list(): Promise<readonly ContainerStatus[]> {
    await this.inventory.look();
    return this.inventory.all().map(({ status }) => status);
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    const events = this.inventory.events(signal);
    this.watcher.wake();
    return events;
  }

  logs(containerId: ContainerId, request: LogRequest, signal: StopSignal): AsyncIterable<LogLine> {
    return this.containerLogs.read(containerId, request, signal);
  }

  async *exec(containerId: ContainerId, request: ExecRequest, signal: StopSignal): AsyncGenerator<ExecEvent> {
    const { runtimeId, status } = await this.inventory.lookFor(containerId);
    if (status.phase !== 'running' || status.pid === undefined) {
      throw new CloudlessError('precondition', `container ${containerId} does not run`);
    }
    const { client, turns, records } = this;
    const { clock, log } = this.options;
    yield* execCommand({ client, clock, log, turns, records, runtimeId, mainPid: status.pid, request, signal });
  }

  async close(): Promise<void> {
    this.client.close();
    this.watcher.close();
    for (const timer of this.timers) timer.cancel();
    this.timers.clear();
    this.inventory.fail(closedError());
  }

  private logDirectoryOf(containerId: ContainerId): string {
    return path.join(this.options.logDirectory, containerId);
  }

  private async sweep(): Promise<void> {
    const { inventory, sandboxes, starter } = this;
    const { clock, log, orphanAgeMs = 60_000, logDirectory: logRoot } = this.options;
    const isStarting = (id: ContainerId): boolean => starter.isStarting(id);
    await sweep({ inventory, sandboxes, isStarting, logRoot, log, orphanAgeMs, nowMs: clock.wallTime() });
  }

  /** Again and again until closed; one turn at a time. */
  private repeat(everyMs: number, action: () => Promise<void>): void {
    if (this.client.closed.aborted) return;
    const timer = this.options.clock.setTimer(everyMs, () => {
      this.timers.delete(timer);
      void action()
        .catch((reason: unknown) => {
          if (errorKindOf(reason) !== 'unavailable') this.options.log.warn('upkeep failed', errorFields(reason));
        })
        .finally(() => this.repeat(everyMs, action));
    });
    this.timers.add(timer);
  }
}
