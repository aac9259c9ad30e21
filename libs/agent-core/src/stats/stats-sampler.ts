import { definedFields, errorFields, sleep, type Clock, type Log } from '@cloudless/base';
import {
  ratesBetween,
  type ContainerRates,
  type ContainerSample,
  type SampleResult,
} from '@cloudless/cgroup-stats';
import { listAvailable, type ContainerRuntime, type ContainerStatus } from '@cloudless/runtime';
import type { ContainerOwner } from '../container/container-labels.js';
import type { NodeReplicas } from '../replica/node-replicas.js';
import {
  computeNextSample,
  computeSampleOffset,
  SAMPLE_INTERVAL_MS,
  SECOND_SAMPLE_MS,
  TICK_MS,
} from './sample-times.js';
import type { StatsReader } from './stats-reader.js';

/** A running container with its newest sample. */
export interface ContainerStatistics {
  readonly owner: ContainerOwner;
  readonly status: ContainerStatus;
  /** Absent before the first sample and after a failed sample. */
  readonly sample?: ContainerSample;
  /** Averages since the previous sample; absent without a previous sample. */
  readonly rates?: ContainerRates & { readonly intervalMs: number };
}

/** Receives every periodic sample. */
export interface StatsObserver {
  onSampled(container: ContainerStatistics & { readonly sample: ContainerSample }): void;
  /** Called when the container has exited or the sampler has ended. */
  onGone(container: ContainerStatistics): void;
}

export interface StatsSamplerOptions {
  readonly reader: StatsReader;
  readonly runtime: Pick<ContainerRuntime, 'list' | 'listAvailable'>;
  readonly replicas: Pick<NodeReplicas, 'subscribe' | 'findOwner'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly observer?: StatsObserver;
}

interface TrackedContainer {
  statistics: ContainerStatistics;
  /** Offset of the samples within the interval. */
  readonly offsetMs: number;
  /** Time of the next sample on the monotonic clock. */
  nextMs: number;
  /** True when the last sample failed; a failure is logged once. */
  failing: boolean;
}

/**
 * Samples every running container of this node periodically and keeps the newest sample of each.
 */
export class StatsSampler {
  private readonly tracked = new Map<string, TrackedContainer>();
  /** Time from which the runtime is listed again, on the monotonic clock. */
  private listAtMs = Number.NEGATIVE_INFINITY;
  private failing = false;

  constructor(private readonly options: StatsSamplerOptions) {}

  /** All running containers, including those without a sample. */
  async listContainers(): Promise<readonly ContainerStatistics[]> {
    await this.refreshListIfDue();
    return this.newestStatistics;
  }

  /** Statistics of the running containers in the newest list, possibly without samples. */
  get newestStatistics(): readonly ContainerStatistics[] {
    return [...this.tracked.values()].map(({ statistics }) => statistics);
  }

  /**
   * Samples a container now, without a change of the stored sample.
   * @returns Undefined when the container has exited or its process is not visible.
   */
  async sampleNow({
    pid,
    ownCgroup,
    ownNetwork,
  }: ContainerStatus): Promise<SampleResult | undefined> {
    const { reader } = this.options;
    if (pid === undefined) return undefined;
    if (ownCgroup === true) return reader.readCgroup({ pid, ...definedFields({ ownNetwork }) });
    return (await reader.readProcesses([pid])).get(pid);
  }

  /** Samples the containers until `signal` is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { replicas, clock } = this.options;
    const requestList = (): void => void (this.listAtMs = Number.NEGATIVE_INFINITY);
    const unsubscribe = replicas.subscribe({
      onChanged: requestList,
      onRefused: () => undefined,
      onForgotten: requestList,
    });
    while (!signal.aborted) {
      await this.sampleDue();
      await sleep(clock, TICK_MS, signal).catch(() => undefined);
    }
    unsubscribe();
    for (const containerId of [...this.tracked.keys()]) this.untrack(containerId);
  }

  private async sampleDue(): Promise<void> {
    const { clock } = this.options;
    await this.refreshListIfDue();
    const due = [...this.tracked.values()].filter(({ nextMs }) => nextMs <= clock.now());
    for (const tracked of due.filter(hasOwnCgroup))
      await this.sample(tracked, () => this.sampleNow(tracked.statistics.status));
    const processes = due.filter((tracked) => !hasOwnCgroup(tracked));
    if (processes.length === 0) return;
    const pids = processes.flatMap(({ statistics: { status } }) =>
      status.pid === undefined ? [] : [status.pid],
    );
    const samples = this.options.reader.readProcesses(pids);
    for (const tracked of processes)
      await this.sample(tracked, async () =>
        (await samples).get(tracked.statistics.status.pid ?? 0),
      );
  }

  /** Lists the runtime's containers once per interval and after each change. */
  private async refreshListIfDue(): Promise<void> {
    const { runtime, clock, log } = this.options;
    if (clock.now() < this.listAtMs) return;
    // Set before the call, because a change during the call must cause another list.
    this.listAtMs = clock.now() + SAMPLE_INTERVAL_MS;
    try {
      this.updateTracked((await listAvailable(runtime)).containers);
      this.failing = false;
    } catch (reason) {
      // Known containers can still be sampled without the runtime.
      if (!this.failing) log.warn('containers to be sampled not listed', errorFields(reason));
      this.failing = true;
      this.listAtMs = clock.now();
    }
  }

  private updateTracked(containers: readonly ContainerStatus[]): void {
    const { replicas, clock } = this.options;
    const running = containers.filter(({ phase, pid }) => phase === 'running' && pid !== undefined);
    const ids = new Set<string>(running.map(({ containerId }) => containerId));
    for (const containerId of this.tracked.keys())
      if (!ids.has(containerId)) this.untrack(containerId);
    for (const status of running) {
      const owner = replicas.findOwner(status);
      if (owner === undefined) continue;
      const trackedContainer = this.tracked.get(status.containerId);
      if (trackedContainer !== undefined)
        trackedContainer.statistics = { ...trackedContainer.statistics, status };
      else {
        const offsetMs = computeSampleOffset(status.containerId, status.ownCgroup === true);
        this.tracked.set(status.containerId, {
          statistics: { owner, status },
          offsetMs,
          nextMs: clock.now(),
          failing: false,
        });
      }
    }
  }

  private async sample(
    tracked: TrackedContainer,
    read: () => Promise<SampleResult | undefined>,
  ): Promise<void> {
    const { clock, log, observer } = this.options;
    const { owner, status, sample: before } = tracked.statistics;
    try {
      const result = await read();
      // The container was untracked meanwhile: nothing would remove the series of this sample.
      if (this.tracked.get(status.containerId) !== tracked) return;
      // the container has just exited
      if (result === undefined) return this.untrack(status.containerId);
      const first = before === undefined;
      tracked.nextMs = first
        ? clock.now() + SECOND_SAMPLE_MS
        : computeNextSample(clock.now(), tracked.offsetMs);
      const statistics = {
        owner,
        status,
        sample: result.sample,
        ...toRates(before, result.sample),
      };
      tracked.statistics = statistics;
      tracked.failing = false;
      observer?.onSampled(statistics);
    } catch (reason) {
      if (!tracked.failing)
        log.warn('container not sampled', {
          containerId: status.containerId,
          ...errorFields(reason),
        });
      tracked.failing = true;
      tracked.nextMs = computeNextSample(clock.now(), tracked.offsetMs);
      tracked.statistics = { owner, status }; // the old sample no longer describes the container
    }
  }

  private untrack(containerId: string): void {
    const tracked = this.tracked.get(containerId);
    if (tracked === undefined) return;
    this.tracked.delete(containerId);
    this.options.observer?.onGone(tracked.statistics);
  }
}

const hasOwnCgroup = ({ statistics }: TrackedContainer): boolean =>
  statistics.status.ownCgroup === true;

function toRates(
  before: ContainerSample | undefined,
  after: ContainerSample,
): Pick<ContainerStatistics, 'rates'> {
  const rates = before === undefined ? {} : ratesBetween(before, after);
  if (before === undefined || Object.keys(rates).length === 0) return {};
  return { rates: { ...rates, intervalMs: after.atMs - before.atMs } };
}
