import {
  backoffDelayMs,
  CloudlessError,
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
import { HEALTHY } from '../container-runtime.js';
import type {
  AvailableContainers,
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

/** A part that does not answer a list call for this long counts as unavailable, milliseconds. */
const LIST_TIMEOUT_MS = 2_000;
/** Delay between attempts to reach an unavailable part. */
const RETRY_BACKOFF: BackoffPolicy = { firstMs: 50, maxMs: 5_000, jitter: 0.2 };

/**
 * Combines two runtimes: requests with an image go to `containers`, all others to `processes`.
 * While one part is unavailable or does not answer for 2 s, the other one works on: `list` returns
 * the last known containers of the unavailable part, calls about them fail with kind `unavailable`,
 * and their changes follow as events when the part answers again. So `events` does not end when a
 * part becomes unavailable, and `list` fails only until each part has been listed once.
 */
export function combineRuntimes(options: CombinedRuntimeOptions): CombinedRuntime {
  return new ProcessAndContainerRuntime(options);
}

/** Two runtimes that act as one. */
export interface CombinedRuntime extends ContainerRuntime {
  /** As `close`, but does not close the two parts. */
  detach(): void;
}

/** One of the two runtimes with the cache of its containers. */
interface RuntimePart {
  readonly runtime: ContainerRuntime;
  readonly known: ContainerCache;
}

class ProcessAndContainerRuntime implements CombinedRuntime {
  readonly name: string;
  private readonly parts: readonly [RuntimePart, RuntimePart];
  private readonly readers = new EventBroadcaster();
  private readonly closing = new AbortController();
  private listening = false;

  constructor(private readonly options: CombinedRuntimeOptions) {
    const { processes, containers } = options;
    const publish = (event: ContainerEvent): void => this.readers.publish(event);
    const createPart = (runtime: ContainerRuntime): RuntimePart => ({
      runtime,
      known: new ContainerCache(runtime.name, publish, () => options.clock.wallTime()),
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
    return [...new Set(this.parts.flatMap(({ runtime }) => runtime.capabilities()))];
  }

  prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    return this.selectPart(request).runtime.prepare(request, progress, signal);
  }

  async start(request: ContainerRequest): Promise<ContainerStatus> {
    if (this.parts.some(({ known }) => known.has(request.containerId))) {
      throw new CloudlessError('exists', `container ${request.containerId} exists`);
    }
    const { runtime, known } = this.selectPart(request);
    return known.upsert(await runtime.start(request));
  }

  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    const { runtime, known } = await this.requirePart(containerId);
    return known.upsert(await runtime.stop(containerId, graceMs));
  }

  async renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    for (const { runtime, known } of this.parts) {
      const own = new Map([...leases].filter(([containerId]) => known.has(containerId)));
      if (own.size > 0) await runtime.renew(own);
    }
  }

  async remove(containerId: ContainerId): Promise<void> {
    const { runtime, known } = await this.requirePart(containerId);
    await runtime.remove(containerId);
    known.forget(containerId);
  }

  async list(): Promise<readonly ContainerStatus[]> {
    const lists = await Promise.all(this.parts.map((part) => this.listPart(part)));
    return lists.flat();
  }

  async listAvailable(): Promise<AvailableContainers> {
    const [processes, containers] = this.parts;
    const [own, answered] = await Promise.all([
      this.listPart(processes),
      containers.known.isComplete ? this.listPart(containers) : this.listInTime(containers),
    ]);
    return { containers: [...own, ...(answered ?? [])], complete: answered !== undefined };
  }

  health(): RuntimeHealth {
    return this.options.containers.health?.() ?? HEALTHY;
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    if (this.closing.signal.aborted) return this.readers.subscribe(signal, createClosedError());
    const events = this.readers.subscribe(signal);
    if (!this.listening) {
      this.listening = true;
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
    this.readers.fail(createClosedError());
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
   * @throws kind `unavailable` when the container may belong to an unavailable part. An id that no
   *   part has goes to the processes, which reject it.
   */
  private async requirePart(containerId: ContainerId): Promise<RuntimePart> {
    const seen = this.parts.find(({ known }) => known.has(containerId));
    if (seen !== undefined) return seen;
    const looks = await Promise.allSettled(this.parts.map((part) => this.refresh(part)));
    const found = this.parts.find(({ known }) => known.has(containerId));
    if (found !== undefined) return found;
    for (const look of looks) if (look.status === 'rejected') throw look.reason;
    return this.parts[0];
  }

  private async listPart(part: RuntimePart): Promise<readonly ContainerStatus[]> {
    const looked = this.refresh(part);
    if (!part.known.isComplete) return looked;
    const { clock } = this.options;
    const answered = new AbortController();
    const late = sleep(clock, LIST_TIMEOUT_MS, answered.signal).then(() => part.known.list());
    late.catch(() => undefined);
    looked.catch(() => undefined);
    try {
      return await Promise.race([looked, late]);
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable' || this.closing.signal.aborted) throw reason;
      return part.known.list();
    } finally {
      answered.abort();
    }
  }

  /** @returns Undefined when a part that was never listed does not answer. */
  private async listInTime(part: RuntimePart): Promise<readonly ContainerStatus[] | undefined> {
    const answered = new AbortController();
    const late = sleep(this.options.clock, LIST_TIMEOUT_MS, answered.signal).then(() => undefined);
    late.catch(() => undefined);
    const refreshed = this.refresh(part);
    refreshed.catch(() => undefined);
    try {
      return await Promise.race([refreshed, late]);
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable' || this.closing.signal.aborted) throw reason;
      return undefined;
    } finally {
      answered.abort();
    }
  }

  private async refresh({ runtime, known }: RuntimePart): Promise<readonly ContainerStatus[]> {
    const mark = known.snapshotIds();
    return known.applyList(await runtime.list(), mark);
  }

  /** Follows the events of one part until closed. */
  private async followEvents(part: RuntimePart): Promise<void> {
    const { clock, random, log } = this.options;
    const { signal } = this.closing;
    let failures = 0;
    while (!signal.aborted) {
      const round = new AbortController();
      const endRound = (): void => round.abort();
      signal.addEventListener('abort', endRound, { once: true });
      try {
        // subscribes before the list, so that no change is missed
        const events = part.runtime.events(round.signal);
        await this.refresh(part);
        if (failures > 0) log.info('runtime available again', { runtime: part.runtime.name });
        failures = 0;
        for await (const { status } of events) part.known.upsert(status, true);
      } catch (reason) {
        if (failures === 0 && !signal.aborted)
          log.warn('runtime unavailable', { runtime: part.runtime.name, ...errorFields(reason) });
      } finally {
        signal.removeEventListener('abort', endRound);
        round.abort();
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
