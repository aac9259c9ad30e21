import { CloudlessError, type Clock, type ContainerId, type StopSignal } from '@cloudless/base';
import { HEALTHY } from '../container-runtime.js';
import type {
  ContainerEvent,
  ContainerLease,
  ContainerRequest,
  ContainerRuntime,
  ContainerSignal,
  ContainerStatus,
  EgressRule,
  ExecEvent,
  ExecRequest,
  LogBatch,
  LogLine,
  LogRequest,
  RuntimeHealth,
  StartProgress,
} from '../container-runtime.js';

export interface LazyRuntimeOptions<Runtime extends ContainerRuntime> {
  readonly name: string;
  /** Version to report before the runtime is open. */
  readonly version: string;
  /** Capabilities to report before the runtime is open. */
  readonly capabilities: readonly string[];
  /**
   * Returns the reason why there is no runtime to open, undefined when there is a runtime. Until
   * the owner is set, starts and preparations fail with kind `unimplemented` and this reason, if
   * any.
   */
  readonly missingReason?: () => string | undefined;
  /**
   * Opens the runtime for an owner. After a failure, the next call of any method calls `open`
   * again.
   */
  readonly open: (owner: string) => Promise<Runtime>;
  /**
   * Silence in milliseconds that `health` reports at least until the runtime is open, for a runtime
   * that is known not to answer. Default 0.
   */
  readonly leastSilentMs?: number;
  readonly clock: Pick<Clock, 'now'>;
}

/**
 * A runtime that is opened once its owner is known. Until {@link LazyRuntime.setOwner} is called it
 * has no containers. Afterwards it delegates to the runtime that `open` returns; while `open`
 * fails, every call fails with the same error.
 */
export class LazyRuntime<
  Runtime extends ContainerRuntime = ContainerRuntime,
> implements ContainerRuntime {
  readonly name: string;
  private owner: string | undefined;
  private opening: Promise<Runtime> | undefined;
  private current: Runtime | undefined;
  private closed = false;
  /** Time of the first `setOwner` on the monotonic clock. */
  private ownerSetAt: number | undefined;
  private readonly waiting = new Set<() => void>();

  constructor(private readonly options: LazyRuntimeOptions<Runtime>) {
    this.name = options.name;
  }

  /** The opened runtime; undefined before. */
  get opened(): Runtime | undefined {
    return this.current;
  }

  /**
   * Sets the owner and opens the runtime. Resolves when the runtime is open. A second call does not
   * change the owner.
   * @throws The error of `open`.
   */
  async setOwner(owner: string): Promise<void> {
    if (this.owner === undefined) {
      this.owner = owner;
      this.ownerSetAt = this.options.clock.now();
      this.opening = this.tryOpen(owner); // set before the waiting readers continue
      for (const wake of [...this.waiting]) wake();
    }
    await this.requireRuntime();
  }

  async version(): Promise<string> {
    return this.owner === undefined
      ? this.options.version
      : (await this.requireRuntime()).version();
  }

  capabilities(): readonly string[] {
    return this.current?.capabilities() ?? this.options.capabilities;
  }

  async prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    await (await this.requireRuntime()).prepare(request, progress, signal);
  }

  async start(request: ContainerRequest): Promise<ContainerStatus> {
    return (await this.requireRuntime()).start(request);
  }

  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    this.requireOwner(containerId);
    return (await this.requireRuntime()).stop(containerId, graceMs);
  }

  async signal(containerId: ContainerId, signal: ContainerSignal): Promise<void> {
    this.requireOwner(containerId);
    await (await this.requireRuntime()).signal(containerId, signal);
  }

  async limitEgress(containerId: ContainerId, rules: readonly EgressRule[]): Promise<void> {
    this.requireOwner(containerId);
    await (await this.requireRuntime()).limitEgress(containerId, rules);
  }

  async renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    if (this.owner !== undefined) await (await this.requireRuntime()).renew(leases);
  }

  async remove(containerId: ContainerId): Promise<void> {
    if (this.owner !== undefined) await (await this.requireRuntime()).remove(containerId);
  }

  async list(): Promise<readonly ContainerStatus[]> {
    return this.owner === undefined && !this.closed ? [] : (await this.requireRuntime()).list();
  }

  /** Reports a runtime that is not open yet as silent since the first `setOwner`. */
  health(): RuntimeHealth {
    if (this.current !== undefined) return this.current.health?.() ?? HEALTHY;
    const { clock, leastSilentMs = 0 } = this.options;
    const waitedMs = this.ownerSetAt === undefined ? 0 : clock.now() - this.ownerSetAt;
    return { ...HEALTHY, containersSilentMs: Math.max(waitedMs, leastSilentMs) };
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    return this.current?.events(signal) ?? this.readEventsOnceOpen(signal);
  }

  async *logs(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogLine> {
    this.requireOwner(containerId);
    yield* (await this.requireRuntime()).logs(containerId, request, signal);
  }

  async *logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogBatch> {
    this.requireOwner(containerId);
    yield* (await this.requireRuntime()).logBatches(containerId, request, signal);
  }

  async *exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncGenerator<ExecEvent> {
    this.requireOwner(containerId);
    yield* (await this.requireRuntime()).exec(containerId, request, signal);
  }

  async close(): Promise<void> {
    this.closed = true;
    for (const wake of [...this.waiting]) wake();
    await (await this.opening?.catch(() => undefined))?.close();
  }

  /**
   * Returns events that begin when the runtime is open. The reader gets the containers that exist
   * then as events too.
   */
  private readEventsOnceOpen(signal: StopSignal): AsyncIterable<ContainerEvent> {
    const subscribed = this.subscribe(signal);
    subscribed.catch(() => undefined); // the reader gets the error
    return (async function* () {
      const events = await subscribed;
      if (events !== undefined) yield* events;
    })();
  }

  private async subscribe(signal: StopSignal): Promise<AsyncIterable<ContainerEvent> | undefined> {
    while (this.owner === undefined && !this.closed && !signal.aborted)
      await this.waitForWake(signal);
    if (signal.aborted) return undefined;
    const runtime = await this.requireRuntime();
    const events = runtime.events(signal);
    return this.prependStatuses(await runtime.list(), events);
  }

  private async *prependStatuses(
    statuses: readonly ContainerStatus[],
    events: AsyncIterable<ContainerEvent>,
  ): AsyncGenerator<ContainerEvent> {
    for (const status of statuses)
      yield { kind: status.phase === 'running' ? 'started' : 'exited', status };
    yield* events;
  }

  private waitForWake(signal: StopSignal): Promise<void> {
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

  private requireOwner(containerId: ContainerId): void {
    if (this.owner === undefined)
      throw new CloudlessError('notFound', `no container ${containerId}`);
  }

  private async requireRuntime(): Promise<Runtime> {
    if (this.closed) throw new CloudlessError('unavailable', 'this runtime is closed');
    if (this.owner === undefined) {
      const reason = this.options.missingReason?.();
      if (reason !== undefined) throw new CloudlessError('unimplemented', `image: ${reason}`);
      throw new CloudlessError(
        'unavailable',
        `the ${this.name} runtime is not open yet: this node belongs to no cluster`,
      );
    }
    this.opening ??= this.tryOpen(this.owner);
    return this.opening;
  }

  private tryOpen(owner: string): Promise<Runtime> {
    const attempt = this.options.open(owner).then((runtime) => (this.current = runtime));
    attempt.catch(() => {
      if (this.opening === attempt) this.opening = undefined;
    });
    return attempt;
  }
}
