import fc from 'fast-check';
import { silentLog, toContainerId, type Log } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import type { ContainerStatus } from '@cloudless/runtime';
import { toContainerLabels } from '../container/container-labels.js';
import { createFakeSample, FakeStats } from '../testing/index.js';
import { createContainerMetrics } from './container-metrics.js';
import { StatsSampler, type StatsSamplerOptions } from './stats-sampler.js';
import { computeNextSample, computeSampleOffset, SAMPLE_INTERVAL_MS } from './sample-times.js';

const owner = {
  clusterId: 'c',
  nodeId: 'n',
  replicaId: 'web-1',
  workloadUid: 'u',
  namespace: 'default',
  workload: 'web',
  version: 1,
  slot: 0,
  orderRevision: 1n,
  restarts: 0,
};
const status = (pid: number, fields: Partial<ContainerStatus> = {}): ContainerStatus => ({
  containerId: toContainerId(pid.toString(16).padStart(8, '0').padEnd(64, 'a')),
  labels: toContainerLabels(owner, { labels: {}, annotations: {} }),
  phase: 'running',
  pid,
  startedAtMs: 0,
  endpoints: [],
  ...fields,
});

/** Sampler on virtual time with a list of containers that the test replaces. */
class SamplerTestBed {
  readonly clock = new ManualClock();
  readonly stats = new FakeStats(this.clock);
  readonly meter = new RecordingMeter();
  readonly warnings: string[] = [];
  containers: readonly ContainerStatus[];
  listCalls = 0;
  private readonly stopping = new AbortController();
  readonly changeListeners = new Set<() => void>();
  readonly sampler: StatsSampler;
  private runPromise: Promise<void> = Promise.resolve();

  constructor(...containers: readonly ContainerStatus[]) {
    this.containers = containers;
    const log: Log = {
      ...silentLog,
      warn: (message) => void this.warnings.push(message),
      child: () => log,
    };
    const replicas: StatsSamplerOptions['replicas'] = {
      findOwner: ({ labels }) => (labels['foreign'] === undefined ? owner : undefined),
      subscribe: (listener) => {
        const notify = (): void => listener.onChanged('web-1');
        this.changeListeners.add(notify);
        return () => this.changeListeners.delete(notify);
      },
    };
    const list = async (): Promise<readonly ContainerStatus[]> => (
      (this.listCalls += 1),
      this.containers
    );
    const { clock, stats: reader } = this;
    this.sampler = new StatsSampler({
      reader,
      runtime: { list },
      replicas,
      clock,
      log,
      observer: createContainerMetrics(this.meter),
    });
  }

  async run(forMs = 0): Promise<this> {
    this.runPromise = this.sampler.run(this.stopping.signal);
    await this.clock.advance(forMs);
    return this;
  }

  /**
   * Replaces the containers of the runtime.
   * @param notifies - Also notifies the sampler, as the agent does when a replica changes.
   */
  setContainers(containers: readonly ContainerStatus[], notifies = true): void {
    this.containers = containers;
    if (notifies) for (const notify of this.changeListeners) notify();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.runPromise;
  }

  get statistics() {
    return this.sampler.newestStatistics;
  }
}

describe('StatsSampler', () => {
  it('has rates 2 s after the first sample of a container, then samples every 10 s', async () => {
    const testBed = await new SamplerTestBed(status(1)).run();
    expect(testBed.statistics).toMatchObject([{ sample: { atMs: 0 } }]);
    expect(testBed.statistics[0]).not.toHaveProperty('rates');
    await testBed.clock.advance(2_000);
    expect(testBed.statistics[0]?.rates).toMatchObject({
      intervalMs: 2_000,
      cpuMillis: 500,
      readBytesPerSecond: 1_000,
    });
    await testBed.clock.advance(28_000);
    expect(testBed.stats.reads.map(({ atMs }) => atMs)).toEqual([0, 2_000, 10_000, 20_000, 30_000]);
    expect(testBed.statistics[0]?.rates).toMatchObject({ intervalMs: 10_000, cpuMillis: 500 });
  });

  it('reads containers with cgroups one by one over the interval, and processes together', async () => {
    const cgroupContainers = Array.from({ length: 10 }, (_, index) =>
      status(index + 1, { ownCgroup: true }),
    );
    const processes = [status(101), status(102)];
    const testBed = await new SamplerTestBed(...cgroupContainers, ...processes).run(60_000);
    const late = testBed.stats.reads.filter(({ atMs }) => atMs > 50_000);
    expect(late.filter(({ ownCgroup }) => ownCgroup).map(({ pids }) => pids.length)).toEqual(
      cgroupContainers.map(() => 1),
    );
    expect(new Set(late.map(({ atMs }) => atMs)).size).toBe(10);
    expect(late.filter(({ ownCgroup }) => !ownCgroup)).toEqual([
      { atMs: 60_000, pids: [101, 102], ownCgroup: false },
    ]);
    await testBed.stop();
  });

  it('lists the containers again at once after a notification, otherwise after an interval', async () => {
    const testBed = await new SamplerTestBed(status(1)).run(3_000);
    expect(testBed.listCalls).toBe(1);
    testBed.setContainers([status(1), status(2)]);
    await testBed.clock.advance(1_000);
    expect(testBed.statistics.map(({ sample }) => sample?.source)).toEqual(['1@1', '2@1']);
    testBed.setContainers([status(2), status(3)], false);
    await testBed.clock.advance(10_000);
    expect(testBed.statistics.map(({ sample }) => sample?.source)).toEqual(['2@1', '3@1']);
  });

  it('lists a new container before its first sample', async () => {
    const testBed = await new SamplerTestBed(status(1)).run(3_000);
    testBed.setContainers([status(1), status(2)]);
    expect((await testBed.sampler.listContainers()).map(({ sample }) => sample?.source)).toEqual([
      '1@1',
      undefined,
    ]);
    await testBed.sampler.listContainers();
    expect(testBed.listCalls).toBe(2);
  });

  it('leaves out containers of another node, exited containers and containers without a pid', async () => {
    const foreign = status(1, { labels: { foreign: '' } });
    const { pid: _, ...unseen } = status(3);
    const testBed = await new SamplerTestBed(foreign, status(2, { phase: 'exited' }), unseen).run(
      5_000,
    );
    expect(testBed.statistics).toEqual([]);
    expect(testBed.stats.reads).toEqual([]);
  });

  it('drops a container that has just exited and logs no warning', async () => {
    const testBed = await new SamplerTestBed(status(1), status(2)).run(5_000);
    testBed.stats.gone.add(1);
    await testBed.clock.advance(5_000);
    expect(testBed.statistics.map(({ status: { pid } }) => pid)).toEqual([2]);
    expect(testBed.warnings).toEqual([]);
  });

  it('drops a sample of a container that exits during the read', async () => {
    const testBed = new SamplerTestBed(status(1, { ownCgroup: true }));
    const read = testBed.stats.readCgroup.bind(testBed.stats);
    let finishRead: () => void = () => undefined;
    const wait = new Promise<void>((resolve) => (finishRead = resolve));
    testBed.stats.readCgroup = async (container) => {
      const result = await read(container);
      await wait;
      return result;
    };
    await testBed.run();
    testBed.setContainers([]);
    await testBed.sampler.listContainers();
    finishRead();
    await testBed.clock.advance(3_000);
    expect(testBed.statistics).toEqual([]);
    expect(testBed.meter.labelsOf('cloudless_container_cpu_seconds_total')).toEqual([]);
  });

  it('computes rates anew for a new container of the same replica', async () => {
    const testBed = await new SamplerTestBed(status(1)).run(12_000);
    const began = testBed.clock.now();
    testBed.stats.createSample = (atMs) => createFakeSample(atMs - began);
    testBed.setContainers([status(2)]);
    await testBed.clock.advance(1_000);
    expect(testBed.statistics[0]).not.toHaveProperty('rates');
    await testBed.clock.advance(2_000);
    expect(testBed.statistics[0]?.rates).toMatchObject({ intervalMs: 2_000, cpuMillis: 500 });
  });

  it('drops the old sample when reads fail, logs once per container, and continues when reads succeed', async () => {
    const testBed = await new SamplerTestBed(status(1, { ownCgroup: true }), status(2)).run(3_000);
    testBed.stats.failure = new Error('denied');
    await testBed.clock.advance(30_000);
    expect(testBed.statistics.map(({ sample, rates }) => [sample, rates])).toEqual([
      [undefined, undefined],
      [undefined, undefined],
    ]);
    expect(testBed.warnings).toEqual(['container not sampled', 'container not sampled']);
    const before = await testBed.meter.read('cloudless_container_cpu_seconds_total');
    testBed.stats.failure = undefined;
    await testBed.clock.advance(15_000);
    expect(testBed.statistics.every(({ rates }) => rates?.cpuMillis === 500)).toBe(true);
    expect(await testBed.meter.read('cloudless_container_cpu_seconds_total')).toBeGreaterThan(
      before,
    );
  });

  it('samples the containers of the last list while the runtime does not answer, and logs once', async () => {
    const testBed = await new SamplerTestBed(status(1)).run(1_000);
    const { containers } = testBed;
    Object.defineProperty(testBed, 'containers', {
      configurable: true,
      get: () => {
        throw new Error('away');
      },
    });
    await testBed.clock.advance(30_000);
    expect(testBed.warnings).toEqual(['containers to be sampled not listed']);
    expect(testBed.statistics[0]?.rates?.cpuMillis).toBe(500);
    Object.defineProperty(testBed, 'containers', { value: [...containers, status(2)] });
    await testBed.clock.advance(1_000);
    expect(testBed.statistics).toHaveLength(2);
  });

  it('leaves no series and no timer when it ends', async () => {
    const testBed = await new SamplerTestBed(status(1)).run(3_000);
    expect(testBed.meter.labelsOf('cloudless_container_cpu_seconds_total')).toHaveLength(1);
    await testBed.stop();
    expect(testBed.meter.labelsOf('cloudless_container_cpu_seconds_total')).toEqual([]);
    expect([testBed.clock.pendingTimers, testBed.changeListeners.size]).toEqual([0, 0]);
  });

  it('exposes full counters again for a container that was removed and is found again', async () => {
    const testBed = await new SamplerTestBed(status(1)).run(5_000);
    testBed.stats.gone.add(1);
    await testBed.clock.advance(5_000);
    expect(testBed.meter.labelsOf('cloudless_container_cpu_seconds_total')).toEqual([]);
    testBed.stats.gone.clear();
    testBed.setContainers(testBed.containers);
    await testBed.clock.advance(1_000);
    expect(await testBed.meter.read('cloudless_container_cpu_seconds_total')).toBe(5.5);
  });
});

describe('container counters', () => {
  it('add up to the usage of the container when reads fail, and never decrease', async () => {
    const arbitrarySteps = fc.array(
      fc.record({ grows: fc.nat(100), fails: fc.boolean(), back: fc.boolean() }),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(arbitrarySteps, async (steps) => {
        let usageNsec = 5_000_000_000n;
        const testBed = new SamplerTestBed(status(1));
        testBed.stats.createSample = () => ({ cpu: { usageNsec } });
        await testBed.run(2_000);
        let previousValue = await testBed.meter.read('cloudless_container_cpu_seconds_total');
        expect(previousValue).toBe(5);
        let [hasDecreased, usedSeconds] = [false, 5];
        for (const { grows, fails, back } of steps) {
          const before = usageNsec;
          usageNsec = back ? usageNsec / 2n : usageNsec + BigInt(grows) * 1_000_000_000n;
          hasDecreased ||= back;
          usedSeconds += Number(usageNsec - before) / 1e9;
          testBed.stats.failure = fails ? new Error('denied') : undefined;
          await testBed.clock.advance(SAMPLE_INTERVAL_MS);
          const now = await testBed.meter.read('cloudless_container_cpu_seconds_total');
          expect(now).toBeGreaterThanOrEqual(previousValue);
          for (const { rates = {} } of testBed.statistics)
            for (const rate of Object.values(rates)) expect(rate).toBeGreaterThanOrEqual(0);
          previousValue = now;
        }
        testBed.stats.failure = undefined;
        await testBed.clock.advance(2 * SAMPLE_INTERVAL_MS);
        if (!hasDecreased)
          expect(await testBed.meter.read('cloudless_container_cpu_seconds_total')).toBeCloseTo(
            usedSeconds,
            6,
          );
        await testBed.stop();
      }),
      { numRuns: 50 },
    );
  });
});

describe('computeNextSample', () => {
  it('returns a time at the offset of the container, 0.5 to 1.5 intervals after the previous sample', () => {
    fc.assert(
      fc.property(fc.nat(1e9), fc.nat(0xffff_ffff), fc.boolean(), (nowMs, id, ownCgroup) => {
        const offsetMs = computeSampleOffset(
          id.toString(16).padStart(8, '0').padEnd(64, '0'),
          ownCgroup,
        );
        const next = computeNextSample(nowMs, offsetMs);
        expect(offsetMs).toBeGreaterThanOrEqual(0);
        expect(offsetMs).toBeLessThan(SAMPLE_INTERVAL_MS);
        expect(next - nowMs).toBeGreaterThanOrEqual(SAMPLE_INTERVAL_MS / 2);
        expect(next - nowMs).toBeLessThanOrEqual(1.5 * SAMPLE_INTERVAL_MS);
        expect((next - offsetMs) % SAMPLE_INTERVAL_MS).toBe(0);
      }),
    );
  });
});
