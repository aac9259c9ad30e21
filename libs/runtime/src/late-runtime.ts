import { CloudlessError, type Clock, type ContainerId, type StopSignal } from '@cloudless/base';
import { HEALTHY } from './container-runtime.js';
import type {
  ContainerEvent,
  ContainerLease,
  ContainerRequest,
  ContainerRuntime,
  ContainerStatus,
  ExecEvent,
  ExecRequest,
  LogBatch,
  LogLine,
  LogRequest,
  RuntimeHealth,
  StartProgress,
} from './container-runtime.js';

export interface LateRuntimeOptions<Runtime extends ContainerRuntime> {
  readonly name: string;
  /** Version to report before the runtime is open. */
  readonly version: string;
  readonly capabilities: readonly string[];
  /**
   * Opens the runtime for an owner. After a failure, the next call of any method calls `open`
   * again.
   */
  readonly open: (owner: string) => Promise<Runtime>;
  readonly clock: Pick<Clock, 'now'>;
}

/**
 * A runtime that is opened once its owner is known. Until {@link LazyRuntime.setOwner} it has no
 * containers. Afterwards it delegates to the runtime that `open` returns, and every call fails with
 * the error of `open` while that fails.
 */
export class LateRuntime<
  Runtime extends ContainerRuntime = ContainerRuntime,
> implements ContainerRuntime {
  readonly name: string;
  private owner: string | undefined;
  private opening: Promise<Runtime> | undefined;
  private opened: Runtime | undefined;
  private closed = false;
  /** Time of the first `setOwner` on the monotonic clock. */
  private begunAt: number | undefined;
  private readonly waiting = new Set<() => void>();

  constructor(private readonly options: LateRuntimeOptions<Runtime>) {
    this.name = options.name;
  }

  /** The opened runtime; undefined before. */
  get inner(): Runtime | undefined {
    return this.opened;
  }

  /**
   * Sets the owner and opens the runtime; a second call only waits. Resolves when the runtime is
   * open. @throws The error of `open`.
   */
  async begin(owner: string): Promise<void> {
    if (this.owner === undefined) {
      this.owner = owner;
      this.begunAt = this.options.clock.now();
      this.opening = this.attempt(owner); // set before the waiting readers continue
      for (const wake of [...this.waiting]) wake();
    }
    await this.runtime();
  }

  async version(): Promise<string> {
    return this.owner === undefined ? this.options.version : (await this.runtime()).version();
  }

  capabilities(): readonly string[] {
    return this.opened?.capabilities() ?? this.options.capabilities;
  }

  async prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    await (await this.runtime()).prepare(request, progress, signal);
  }

  async start(request: ContainerRequest): Promise<ContainerStatus> {
    return (await this.runtime()).start(request);
  }

  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    this.refuseUnknown(containerId);
    return (await this.runtime()).stop(containerId, graceMs);
  }

  async renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    if (this.owner !== undefined) await (await this.runtime()).renew(leases);
  }

  async remove(containerId: ContainerId): Promise<void> {
    if (this.owner !== undefined) await (await this.runtime()).remove(containerId);
  }

  async list(): Promise<readonly ContainerStatus[]> {
    return this.owner === undefined && !this.closed ? [] : (await this.runtime()).list();
  }

  /** A runtime that has not been opened counts as silent since `setOwner`. */
  health(): RuntimeHealth {
    if (this.opened !== undefined) return this.opened.health?.() ?? HEALTHY;
    if (this.begunAt === undefined) return HEALTHY;
    return { containersSilentMs: this.options.clock.now() - this.begunAt, withoutProcess: [] };
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    return this.opened?.events(signal) ?? this.eventsOnceOpen(signal);
  }

  async *logs(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogLine> {
    this.refuseUnknown(containerId);
    yield* (await this.runtime()).logs(containerId, request, signal);
  }

  async *logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogBatch> {
    this.refuseUnknown(containerId);
    yield* (await this.runtime()).logBatches(containerId, request, signal);
  }

  async *exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncGenerator<ExecEvent> {
    this.refuseUnknown(containerId);
    yield* (await this.runtime()).exec(containerId, request, signal);
  }

  async close(): Promise<void> {
    this.closed = true;
    for (const wake of [...this.waiting]) wake();
    await (await this.opening?.catch(() => undefined))?.close();
  }

  /** Readers that subscribed before the runtime was open get its existing containers as events. */
  private eventsOnceOpen(signal: StopSignal): AsyncIterable<ContainerEvent> {
    const subscribed = this.subscribe(signal);
    subscribed.catch(() => undefined); // thrown to the reader
    return (async function* () {
      const events = await subscribed;
      if (events !== undefined) yield* events;
    })();
  }

  private async subscribe(signal: StopSignal): Promise<AsyncIterable<ContainerEvent> | undefined> {
    while (this.owner === undefined && !this.closed && !signal.aborted) await this.woken(signal);
    if (signal.aborted) return undefined;
    const runtime = await this.runtime();
    const events = runtime.events(signal);
    return this.withThose(await runtime.list(), events);
  }

  private async *withThose(
    statuses: readonly ContainerStatus[],
    events: AsyncIterable<ContainerEvent>,
  ): AsyncGenerator<ContainerEvent> {
    for (const status of statuses)
      yield { kind: status.phase === 'running' ? 'started' : 'exited', status };
    yield* events;
  }

  private woken(signal: StopSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.waiting.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      this.waiting.add(wake);
      signal.addEventListener('abort', wake, { once: true });
    });
  }

  private refuseUnknown(containerId: ContainerId): void {
    if (this.owner === undefined)
      throw new CloudlessError('notFound', `no container ${containerId}`);
  }

  private async runtime(): Promise<Runtime> {
    if (this.closed) throw new CloudlessError('unavailable', 'this runtime is closed');
    if (this.owner === undefined) {
      throw new CloudlessError(
        'unavailable',
        `the ${this.name} runtime is not open yet: this node belongs to no cluster`,
      );
    }
    this.opening ??= this.attempt(this.owner);
    return this.opening;
  }

  private attempt(owner: string): Promise<Runtime> {
    const attempt = this.options.open(owner).then((runtime) => (this.opened = runtime));
    attempt.catch(() => {
      if (this.opening === attempt) this.opening = undefined;
    });
    return attempt;
  }
}
