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
import { EventReaders } from './event-readers.js';
import { KnownContainers } from './known-containers.js';
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
const STUCK_MS = 2_000;
/** Delay between attempts to reach an unavailable part. */
const AWAY: BackoffPolicy = { firstMs: 50, maxMs: 5_000, jitter: 0.2 };

/**
 * Combines two runtimes: requests with an image go to `containers`, all others to `processes`.
 * While one part is unavailable or does not answer for 2 s, the other one works on: `list` returns
 * the last known containers of the unavailable part, calls about them fail with kind `unavailable`,
 * and their changes follow as events when the part answers again. So `events` does not end when a
 * part becomes unavailable, and `list` fails only until each part has been listed once.
 */
export function combineRuntimes(options: CombinedRuntimeOptions): CombinedRuntime {
  return new TwoRuntimes(options);
}

/** Two runtimes that act as one. */
export interface CombinedRuntime extends ContainerRuntime {
  /** As `close`, but does not close the two parts. */
  letGo(): void;
}

/** One of the two runtimes with the cache of its containers. */
interface Part {
  readonly runtime: ContainerRuntime;
  readonly known: KnownContainers;
}

class TwoRuntimes implements CombinedRuntime {
  readonly name: string;
  private readonly parts: readonly [Part, Part];
  private readonly readers = new EventReaders();
  private readonly closing = new AbortController();
  private listening = false;

  constructor(private readonly options: CombinedRuntimeOptions) {
    const { processes, containers } = options;
    const tell = (event: ContainerEvent): void => this.readers.tell(event);
    const partOf = (runtime: ContainerRuntime): Part => ({
      runtime,
      known: new KnownContainers(runtime.name, tell, () => options.clock.wallTime()),
    });
    this.parts = [partOf(processes), partOf(containers)];
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
    return this.partFor(request).runtime.prepare(request, progress, signal);
  }

  async start(request: ContainerRequest): Promise<ContainerStatus> {
    if (this.parts.some(({ known }) => known.has(request.containerId))) {
      throw new CloudlessError('exists', `container ${request.containerId} exists`);
    }
    const { runtime, known } = this.partFor(request);
    return known.take(await runtime.start(request));
  }

  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    const { runtime, known } = await this.partOf(containerId);
    return known.take(await runtime.stop(containerId, graceMs));
  }

  async renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    for (const { runtime, known } of this.parts) {
      const own = new Map([...leases].filter(([containerId]) => known.has(containerId)));
      if (own.size > 0) await runtime.renew(own);
    }
  }

  async remove(containerId: ContainerId): Promise<void> {
    const { runtime, known } = await this.partOf(containerId);
    await runtime.remove(containerId);
    known.forget(containerId);
  }

  async list(): Promise<readonly ContainerStatus[]> {
    const lists = await Promise.all(this.parts.map((part) => this.listOf(part)));
    return lists.flat();
  }

  health(): RuntimeHealth {
    return this.options.containers.health?.() ?? HEALTHY;
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    if (this.closing.signal.aborted) return this.readers.read(signal, closedError());
    const events = this.readers.read(signal);
    if (!this.listening) {
      this.listening = true;
      for (const part of this.parts) void this.follow(part);
    }
    return events;
  }

  async *logs(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogLine> {
    yield* (await this.partOf(containerId)).runtime.logs(containerId, request, signal);
  }

  async *logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogBatch> {
    yield* (await this.partOf(containerId)).runtime.logBatches(containerId, request, signal);
  }

  async *exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncGenerator<ExecEvent> {
    yield* (await this.partOf(containerId)).runtime.exec(containerId, request, signal);
  }

  letGo(): void {
    this.closing.abort();
    this.readers.fail(closedError());
  }

  async close(): Promise<void> {
    this.letGo();
    await Promise.all(this.parts.map(({ runtime }) => runtime.close()));
  }

  private partFor({ image }: ContainerRequest): Part {
    const [processes, containers] = this.parts;
    return image === undefined ? processes : containers;
  }

  /**
   * @throws kind `unavailable` when the container may belong to an unavailable part. An id that no
   *   part has goes to the processes, which reject it.
   */
  private async partOf(containerId: ContainerId): Promise<Part> {
    const seen = this.parts.find(({ known }) => known.has(containerId));
    if (seen !== undefined) return seen;
    const looks = await Promise.allSettled(this.parts.map((part) => this.look(part)));
    const found = this.parts.find(({ known }) => known.has(containerId));
    if (found !== undefined) return found;
    for (const look of looks) if (look.status === 'rejected') throw look.reason;
    return this.parts[0];
  }

  private async listOf(part: Part): Promise<readonly ContainerStatus[]> {
    const looked = this.look(part);
    if (!part.known.isComplete) return looked;
    const { clock } = this.options;
    const answered = new AbortController();
    const late = sleep(clock, STUCK_MS, answered.signal).then(() => part.known.all());
    late.catch(() => undefined);
    looked.catch(() => undefined);
    try {
      return await Promise.race([looked, late]);
    } catch (reason) {
      if (errorKindOf(reason) !== 'unavailable' || this.closing.signal.aborted) throw reason;
      return part.known.all();
    } finally {
      answered.abort();
    }
  }

  private async look({ runtime, known }: Part): Promise<readonly ContainerStatus[]> {
    const mark = known.mark();
    return known.compare(await runtime.list(), mark);
  }

  /** Follows the events of one part until closed. */
  private async follow(part: Part): Promise<void> {
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
        await this.look(part);
        if (failures > 0) log.info('runtime available again', { runtime: part.runtime.name });
        failures = 0;
        for await (const { status } of events) part.known.take(status, true);
      } catch (reason) {
        if (failures === 0 && !signal.aborted)
          log.warn('runtime unavailable', { runtime: part.runtime.name, ...errorFields(reason) });
      } finally {
        signal.removeEventListener('abort', endRound);
        round.abort();
      }
      failures += 1;
      await sleep(clock, backoffDelayMs(AWAY, failures, random), signal).catch(() => undefined);
    }
  }
}

function closedError(): CloudlessError {
  return new CloudlessError('unavailable', 'this runtime is closed');
}
