import type { Clock } from '@cloudless/base';
import type { ContainerSample, SampleResult } from '@cloudless/cgroup-stats';
import type { StatsReader } from '../stats/stats-reader.js';

/** Usage of a fake container: every value grows linearly with time. */
export function createFakeSample(atMs: number): Omit<ContainerSample, 'source' | 'atMs'> {
  const count = BigInt(Math.round(atMs));
  const nsec = count * 1_000_000n;
  const stalls = { avg10Percent: 1, avg60Percent: 1, avg300Percent: 1, totalNsec: nsec };
  const pressure = { some: stalls, full: stalls };
  return {
    cpu: {
      usageNsec: nsec / 2n,
      userNsec: nsec / 4n,
      systemNsec: nsec / 4n,
      limitMillis: atMs,
      throttling: { periods: count, throttledPeriods: count / 2n, throttledNsec: nsec },
    },
    memory: {
      usageBytes: 3 * atMs,
      workingSetBytes: 2 * atMs,
      limitBytes: 4 * atMs,
      peakBytes: 3 * atMs,
      fileBytes: atMs,
      anonBytes: atMs,
      swapBytes: atMs,
    },
    io: { readBytes: count, writeBytes: count * 2n, readOperations: count, writeOperations: count },
    network: {
      receivedBytes: count * 3n,
      receivedPackets: count,
      receivedErrors: count,
      receivedDropped: count,
      sentBytes: count * 4n,
      sentPackets: count,
      sentErrors: count,
      sentDropped: count,
    },
    pids: { current: atMs, limit: 2 * atMs },
    pressure: { cpu: pressure, memory: pressure, io: pressure },
  };
}

/** Fake statistics of the containers of a machine. */
export class FakeStats implements StatsReader {
  /** Returns the usage of a container by time and pid. */
  createSample: (atMs: number, pid: number) => Omit<ContainerSample, 'source' | 'atMs'> =
    createFakeSample;
  /** Pids that no longer exist. */
  readonly gone = new Set<number>();
  /** While set, every read fails with this error. */
  failure: Error | undefined;
  /** Reads in order. */
  readonly reads: {
    readonly atMs: number;
    readonly pids: readonly number[];
    readonly ownCgroup: boolean;
  }[] = [];

  constructor(private readonly clock: Clock) {}

  async readCgroup({ pid }: { readonly pid: number }): Promise<SampleResult | undefined> {
    return this.read([pid], true).get(pid);
  }

  async readProcesses(pids: readonly number[]): Promise<ReadonlyMap<number, SampleResult>> {
    return this.read(pids, false);
  }

  private read(pids: readonly number[], ownCgroup: boolean): ReadonlyMap<number, SampleResult> {
    const atMs = this.clock.now();
    this.reads.push({ atMs, pids, ownCgroup });
    if (this.failure !== undefined) throw this.failure;
    const existing = pids.filter((pid) => !this.gone.has(pid));
    return new Map(
      existing.map((pid) => [
        pid,
        { sample: { source: `${pid}@1`, atMs, ...this.createSample(atMs, pid) }, problems: [] },
      ]),
    );
  }
}
