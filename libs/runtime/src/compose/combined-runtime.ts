import {
  backoffDelayMs,
  CloudlessError,
  definedFields,
  errorFields,
  errorKindOf,
  sleep,
  type BackoffPolicy,
  type Clock,
  type ContainerId,
  type Log,
  type Random,
  type StopSignal,
} from '@cloudless/base';
import { EventBroadcaster } from '../events/event-broadcaster.js';
import { HEALTHY, SIGNAL_CAPABILITY } from '../container-runtime.js';
import type {
  AvailableContainers,
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
import { ContainerCache } from './container-cache.js';

export interface CombinedRuntimeOptions {
  /** Runs requests without an image. */
  readonly processes: ContainerRuntime;
  /** Runs requests with an image. */
  readonly containers: ContainerRuntime;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Milliseconds after which a part that does not answer a list call counts as unavailable. */
const LIST_TIMEOUT_MS = 2_000;
/** Delay between attempts to reach an unavailable part. */
const RETRY_BACKOFF: BackoffPolicy = { firstMs: 50, maxMs: 5_000, jitter: 0.2 };

/**
 * Combines two runtimes: requests with an image go to `containers`, all others to `processes`.
 * While one part is unavailable or does not answer for 2 s, the other part works on: `list` returns
 * the last known containers of the unavailable part, calls about these containers fail with kind
 * `unavailable`, and their changes follow as events when the part answers again. So `events` does
 * not end when a part becomes unavailable, and `list` fails only until each part has been listed
 * once.
 */
export function combineRuntimes(options: CombinedRuntimeOptions): CombinedRuntime {
  return new ProcessAndContainerRuntime(options);
}

/** Two runtimes that act as one. */
export interface CombinedRuntime extends ContainerRuntime {
  /** Closes this runtime as `close` does, but leaves the two parts open. */
  detach(): void;
}

/** One of the two runtimes with the cache of its containers. */
interface RuntimePart {
  readonly runtime: ContainerRuntime;
  readonly cache: ContainerCache;
}

class ProcessAndContainerRuntime implements CombinedRuntime {
  readonly name: string;
  private readonly parts: readonly [RuntimePart, RuntimePart];
  private readonly eventReaders = new EventBroadcaster();
  private readonly closing = new AbortController();
  private isFollowingEvents = false;

  constructor(private readonly options: CombinedRuntimeOptions) {
    const { processes, containers } = options;
    const publish = (event: ContainerEvent): void => this.eventReaders.publish(event);
    const createPart = (runtime: ContainerRuntime): RuntimePart => ({
      runtime,
      cache: new ContainerCache(runtime.name, publish, () => options.clock.wallTime()),
    });
    this.parts = [createPart(processes), createPart(containers)];
    this.name = this.parts.map(({ runtime }) => runtime.name).join('+');
  }

  async version(): Promise<string> {
    const versions = await Promise.all(
      this.parts.map(async ({ runtime }) => `${runtime.name} ${await runtime.version()}`),
    );
    return versions.join(', ');
  }

  capabilities(): readonly string[] {
    const parts = this.parts.map(({ runtime }) => runtime.capabilities());
    // The name does not say which runtime has the ability, so both must have it.
    const canSignal = parts
      .filter((names) => names.some((name) => name.startsWith('runtime.')))
      .every((names) => names.includes(SIGNAL_CAPABILITY));
    return [...new Set(parts.flat())].filter((name) => canSignal || name !== SIGNAL_CAPABILITY);
  }

  prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    return this.selectPart(request).runtime.prepare(request, progress, signal);
  }

  async start(request: ContainerRequest): Promise<ContainerStatus> {
    if (this.parts.some(({ cache }) => cache.has(request.containerId))) {
      throw new CloudlessError('exists', `container ${request.containerId} exists`);
    }
    const { runtime, cache } = this.selectPart(request);
    return cache.upsert(await runtime.start(request));
  }

  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    const { runtime, cache } = await this.requirePart(containerId);
    return cache.upsert(await runtime.stop(containerId, graceMs));
  }

  async signal(containerId: ContainerId, signal: ContainerSignal): Promise<void> {
    await (await this.requirePart(containerId)).runtime.signal(containerId, signal);
  }

  async limitEgress(containerId: ContainerId, rules: readonly EgressRule[]): Promise<void> {
    await (await this.requirePart(containerId)).runtime.limitEgress(containerId, rules);
  }

  /** Renews both parts at the same time: a part that hangs lets no lease of the other expire. */
  async renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    const renewals = this.parts.map(async ({ runtime, cache }) => {
      const ownLeases = new Map([...leases].filter(([containerId]) => cache.has(containerId)));
      if (ownLeases.size > 0) await runtime.renew(ownLeases);
    });
    for (const result of await Promise.allSettled(renewals))
      if (result.status === 'rejected') throw result.reason;
  }

  async remove(containerId: ContainerId): Promise<void> {
    const { runtime, cache } = await this.requirePart(containerId);
    await runtime.remove(containerId);
    cache.forget(containerId);
  }

  async list(): Promise<readonly ContainerStatus[]> {
    const lists = await Promise.all(this.parts.map((part) => this.listPart(part)));
    return lists.flat();
  }

  async listAvailable(): Promise<AvailableContainers> {
    const [processStatuses, containerStatuses] = await Promise.all(
      this.parts.map((part) =>
        part.cache.isComplete ? this.listPart(part) : this.listInTime(part),
      ),
    );
    return {
      containers: [...(processStatuses ?? []), ...(containerStatuses ?? [])],
      missing: [
        ...(processStatuses === undefined ? (['process'] as const) : []),
        ...(containerStatuses === undefined ? (['container'] as const) : []),
      ],
    };
  }

  health(): RuntimeHealth {
    const { processes, containers } = this.options;
    const { processesSilentMs, supervisorPid } = processes.health?.() ?? HEALTHY;
    return {
      ...(containers.health?.() ?? HEALTHY),
      ...{ processesSilentMs, ...definedFields({ supervisorPid }) },
    };
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    if (this.closing.signal.aborted)
      return this.eventReaders.subscribe(signal, createClosedError());
    const events = this.eventReaders.subscribe(signal);
    if (!this.isFollowingEvents) {
      this.isFollowingEvents = true;
      for (const part of this.parts) void this.followEvents(part);
    }
    return events;
  }

  async *logs(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogLine> {
    yield* (await this.requirePart(containerId)).runtime.logs(containerId, request, signal);
  }

  async *logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogBatch> {
    yield* (await this.requirePart(containerId)).runtime.logBatches(containerId, request, signal);
  }

  async *exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncGenerator<ExecEvent> {
    yield* (await this.requirePart(containerId)).runtime.exec(containerId, request, signal);
  }

  detach(): void {
    this.closing.abort();
    this.eventReaders.fail(createClosedError());
  }

  async close(): Promise<void> {
    this.detach();
    await Promise.all(this.parts.map(({ runtime }) => runtime.close()));
  }

  private selectPart({ image }: ContainerRequest): RuntimePart {
    const [processes, containers] = this.parts;
    return image === undefined ? processes : containers;
  }

  /**
   * Finds the part that has a container. An id that no part has goes to the processes, which reject
   * the id.
   * @throws kind `unavailable` when the container may belong to an unavailable part.
   */
  private async requirePart(containerId: ContainerId): Promise<RuntimePart> {
    const cached = this.parts.find(({ cache }) => cache.has(containerId));
    if (cached !== undefined) return cached;
    const refreshes = await Promise.allSettled(this.parts.map((part) => this.refresh(part)));
    const found = this.parts.find(({ cache }) => cache.has(containerId));
    if (found !== undefined) return found;
    for (const refresh of refreshes) if (refresh.status === 'rejected') throw refresh.reason;
    return this.parts[0];
  }

  /**
   * Lists the containers of a part; its last known containers when the part is unavailable or does
   * not answer in time.
   * @throws The error of the list call of a part that was never listed.
   */
  private async listPart(part: RuntimePart): Promise<readonly ContainerStatus[]> {
    const refreshed = this.refresh(part);
    if (!part.cache.isComplete) return refreshed;
    const { clock } = this.options;
    const finished = new AbortController();
    const timedOut = sleep(clock, LIST_TIMEOUT_MS, finished.signal).then(() => part.cache.list());
    timedOut.catch(() => undefined);
    refreshed.catch(() => undefined);
    try {
      return await Promise.race([refreshed, timedOut]);
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable' || this.closing.signal.aborted) throw reason;
      return part.cache.list();
    } finally {
      finished.abort();
    }
  }

  /**
   * Lists the containers of a part that was never listed.
   * @returns Undefined when the part is unavailable or does not answer in time.
   */
  private async listInTime(part: RuntimePart): Promise<readonly ContainerStatus[] | undefined> {
    const finished = new AbortController();
    const timedOut = sleep(this.options.clock, LIST_TIMEOUT_MS, finished.signal).then(
      () => undefined,
    );
    timedOut.catch(() => undefined);
    const refreshed = this.refresh(part);
    refreshed.catch(() => undefined);
    try {
      return await Promise.race([refreshed, timedOut]);
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable' || this.closing.signal.aborted) throw reason;
      return undefined;
    } finally {
      finished.abort();
    }
  }

  private async refresh({ runtime, cache }: RuntimePart): Promise<readonly ContainerStatus[]> {
    const idsBefore = cache.snapshotIds();
    return cache.applyList(await runtime.list(), idsBefore);
  }

  /** Applies the events of one part to its cache until this runtime is closed. */
  private async followEvents(part: RuntimePart): Promise<void> {
    const { clock, random, log } = this.options;
    const { signal } = this.closing;
    let failures = 0;
    while (!signal.aborted) {
      const attempt = new AbortController();
      const endAttempt = (): void => attempt.abort();
      signal.addEventListener('abort', endAttempt, { once: true });
      try {
        // Subscribes before the list, so that no change is missed.
        const events = part.runtime.events(attempt.signal);
        await this.refresh(part);
        if (failures > 0) log.info('runtime available again', { runtime: part.runtime.name });
        failures = 0;
        for await (const { status } of events) part.cache.upsert(status, true);
      } catch (reason) {
        if (failures === 0 && !signal.aborted)
          log.warn('runtime unavailable', { runtime: part.runtime.name, ...errorFields(reason) });
      } finally {
        signal.removeEventListener('abort', endAttempt);
        attempt.abort();
      }
      failures += 1;
      await sleep(clock, backoffDelayMs(RETRY_BACKOFF, failures, random), signal).catch(
        () => undefined,
      );
    }
  }
}

function createClosedError(): CloudlessError {
  return new CloudlessError('unavailable', 'this runtime is closed');
}
