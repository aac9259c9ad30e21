import { create } from '@bufbuild/protobuf';
import { timestampMs } from '@bufbuild/protobuf/wkt';
import { settle } from '@cloudless/base/testing';
import { toContainerId } from '@cloudless/base';
import {
  ContainerStats_Source as Source,
  GetContainerStatsRequestSchema,
  ListContainerStatsRequestSchema,
  type ContainerStats,
} from '@cloudless/api';
import { MalformedCgroupFileError, type ContainerSample } from '@cloudless/cgroup-stats';
import { aStartOrder, AgentTestBed, createFakeSample, FakeStats } from '../testing/index.js';
import { toContainerStats } from './to-container-stats.js';

const resources = {
  requests: { cpuMillis: 250, memoryBytes: 1_000n },
  limits: { memoryBytes: 2_000n },
};

async function createTestBed(
  ...replicaIds: readonly string[]
): Promise<AgentTestBed & { readonly stats: FakeStats }> {
  const testBed = new AgentTestBed();
  const stats = new FakeStats(testBed.clock);
  testBed.stats = stats;
  await testBed.start();
  for (const [slot, replicaId] of replicaIds.entries())
    testBed.coordinator.sendOrder(
      aStartOrder({
        replicaId,
        slot,
        workload: replicaId.split('-')[0] ?? '',
        spec: { resources },
      }),
    );
  await settle();
  return Object.assign(testBed, { stats });
}

const idOf = (testBed: AgentTestBed, replicaId = 'web-1') =>
  toContainerId(testBed.requireReport(replicaId).containerId);
const get = (testBed: AgentTestBed, init: { containerId?: string; replicaId?: string }) =>
  testBed.agent.containers.getContainerStats(create(GetContainerStatsRequestSchema, init));
const list = (
  testBed: AgentTestBed,
  init: { namespace?: string; name?: string; nodeId?: string } = {},
) => testBed.agent.containers.listContainerStats(create(ListContainerStatsRequestSchema, init));

describe('getContainerStats', () => {
  it('takes a new sample for a container id or a replica id, and does not change the stored samples', async () => {
    const testBed = await createTestBed('web-1');
    await testBed.clock.advance(7_500);
    for (const target of [{ replicaId: 'web-1' }, { containerId: idOf(testBed).slice(0, 12) }]) {
      const stats = await get(testBed, target);
      expect(stats).toMatchObject({
        containerId: idOf(testBed),
        replicaId: 'web-1',
        namespace: 'default',
        workload: 'web',
        nodeId: 'node-1',
        cpu: { cpuUsageNanos: 3_750_000_000n },
      });
      expect(timestampMs(stats.sampledAt!)).toBe(testBed.clock.wallTime());
    }
    // The stored samples, from which rates are computed, do not change.
    await testBed.clock.advance(2_500);
    expect((await list(testBed)).containers[0]).toMatchObject({
      cpuMillis: 500n,
      interval: { seconds: 7n },
    });
  });

  it.each([
    {
      name: 'a request without a target',
      target: {},
      kind: 'invalid',
      message: 'container_id: name either a container_id or a replica_id',
    },
    {
      name: 'a request with two targets',
      target: { containerId: 'a'.repeat(12), replicaId: 'web-1' },
      kind: 'invalid',
      message: 'container_id: name either a container_id or a replica_id',
    },
    {
      name: 'an unknown replica',
      target: { replicaId: 'web-9' },
      kind: 'notFound',
      message: 'replica "web-9" is not on node node-1',
    },
    {
      name: 'an unknown container',
      target: { containerId: 'f'.repeat(12) },
      kind: 'notFound',
      message: 'container "ffffffffffff" is not on node node-1',
    },
  ])('rejects $name', async ({ target, kind, message }) => {
    const testBed = await createTestBed('web-1');
    await expect(get(testBed, target)).rejects.toMatchObject({ kind, message });
  });

  it('rejects with the reason when the container has exited or its process is not visible', async () => {
    const testBed = await createTestBed('web-1');
    const containerId = idOf(testBed);
    const short = containerId.slice(0, 12);
    testBed.stats.gone.add((await testBed.runtime.list())[0]?.pid ?? 0);
    await expect(get(testBed, { containerId })).rejects.toMatchObject({
      kind: 'precondition',
      message: `container "${short}…" has no statistics on node node-1: its process is not visible to the agent`,
    });
    testBed.machine.exit(containerId, 3);
    await settle();
    await expect(get(testBed, { containerId })).rejects.toMatchObject({
      kind: 'precondition',
      message: `container "${short}…" has no statistics on node node-1: exit code 3`,
    });
  });

  it('rejects, as listContainerStats does, when the agent has no statistics reader', async () => {
    const testBed = new AgentTestBed();
    await testBed.start();
    await expect(get(testBed, { replicaId: 'web-1' })).rejects.toMatchObject({
      kind: 'unimplemented',
      message: 'statistics of a container: node node-1 does not support them',
    });
    await expect(list(testBed)).rejects.toMatchObject({ kind: 'unimplemented' });
  });
});

describe('listContainerStats', () => {
  it('returns the newest rates of each container with the requests and limits of its spec', async () => {
    const testBed = await createTestBed('web-1', 'web-2', 'db-1');
    await testBed.clock.advance(30_000);
    const { containers } = await list(testBed);
    expect(containers.map(({ replicaId }) => replicaId)).toEqual(['db-1', 'web-1', 'web-2']);
    expect(containers[1]).toMatchObject({
      containerId: idOf(testBed),
      namespace: 'default',
      workload: 'web',
      nodeId: 'node-1',
      interval: { seconds: 10n },
      cpuMillis: 500n,
      throttledPeriodsRatio: 0.5,
      memoryWorkingSetBytes: 60_000n,
      ioReadBytesPerSecond: 1_000,
      ioWriteBytesPerSecond: 2_000,
      networkReceivedBytesPerSecond: 3_000,
      networkSentBytesPerSecond: 4_000,
      pidsCurrent: 30_000n,
      cpuRequestMillis: 250n,
      memoryRequestBytes: 1_000n,
      memoryLimitBytes: 2_000n,
    });
    expect(containers[1]?.cpuLimitMillis).toBeUndefined();
  });

  it('lists a container without figures before its first sample, and without rates before its second', async () => {
    const testBed = await createTestBed();
    await testBed.clock.advance(3_500);
    expect((await list(testBed)).containers).toEqual([]);
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    const [unsampled] = (await list(testBed)).containers;
    expect(unsampled).toMatchObject({ replicaId: 'web-1', cpuRequestMillis: 100n });
    expect([unsampled?.sampledAt, unsampled?.memoryWorkingSetBytes]).toEqual([
      undefined,
      undefined,
    ]);
    await testBed.clock.advance(1_000);
    const [sampled] = (await list(testBed)).containers;
    expect([sampled?.interval, sampled?.cpuMillis, sampled?.ioReadBytesPerSecond]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect([sampled?.sampledAt, sampled?.memoryWorkingSetBytes]).toEqual([
      expect.anything(),
      8_000n,
    ]);
  });

  it.each([
    { request: {}, replicas: ['db-1', 'web-1'] },
    { request: { namespace: 'default' }, replicas: ['db-1', 'web-1'] },
    { request: { namespace: 'other' }, replicas: [] },
    { request: { name: 'web' }, replicas: ['web-1'] },
    { request: { name: 'web', namespace: 'other' }, replicas: [] },
    { request: { nodeId: 'node-1' }, replicas: ['db-1', 'web-1'] },
    { request: { nodeId: 'node-2' }, replicas: [] },
  ])('returns $replicas for $request', async ({ request, replicas }) => {
    const testBed = await createTestBed('web-1', 'db-1');
    await testBed.clock.advance(1_000);
    expect((await list(testBed, request)).containers.map(({ replicaId }) => replicaId)).toEqual(
      replicas,
    );
  });
});

describe('TunnelServer with statistics', () => {
  it('sends the results of getContainerStats and listContainerStats', async () => {
    const testBed = await createTestBed('web-1');
    await testBed.clock.advance(1_000);
    testBed.coordinator.openTunnel('t1', {
      case: 'stats',
      value: create(GetContainerStatsRequestSchema, { replicaId: 'web-1' }),
    });
    testBed.coordinator.openTunnel('t2', {
      case: 'statsList',
      value: create(ListContainerStatsRequestSchema),
    });
    await settle();
    expect(testBed.coordinator.tunnels.get('t1')).toMatchObject([
      {},
      { case: 'stats', value: { replicaId: 'web-1' } },
      { case: 'end' },
    ]);
    expect(testBed.coordinator.tunnels.get('t2')).toMatchObject([
      {},
      { case: 'statsList', value: { containers: [{ replicaId: 'web-1' }] } },
      { case: 'end' },
    ]);
  });
});

describe('toContainerStats', () => {
  const subject = {
    containerId: 'c1',
    owner: { replicaId: 'web-1', namespace: 'default', workload: 'web' },
    nodeId: 'node-1',
  };
  const clock = {
    now: () => 9_000,
    wallTime: () => 1_000_000,
    setTimer: () => ({ cancel: () => undefined }),
  };
  const toStats = (sample: Partial<ContainerSample>): ContainerStats =>
    toContainerStats(
      subject,
      { sample: { source: 's', atMs: 8_000.4, ...sample }, problems: [] },
      clock,
    );

  it('converts every value of a sample to the units of the field names', () => {
    const stall = { avg10Percent: 1, avg60Percent: 1, avg300Percent: 1, totalNanos: 10_000_000n };
    expect(toStats({ origin: 'v2', ...createFakeSample(10) })).toMatchObject({
      ...{
        containerId: 'c1',
        replicaId: 'web-1',
        namespace: 'default',
        workload: 'web',
        nodeId: 'node-1',
      },
      sampledAt: { seconds: 999n, nanos: 0 },
      source: Source.CGROUP_V2,
      cpu: {
        cpuUsageNanos: 5_000_000n,
        cpuUserNanos: 2_500_000n,
        cpuSystemNanos: 2_500_000n,
        cpuLimitMillis: 10n,
        periods: 10n,
        throttledPeriods: 5n,
        throttledNanos: 10_000_000n,
      },
      memory: {
        memoryUsageBytes: 30n,
        memoryWorkingSetBytes: 20n,
        memoryLimitBytes: 40n,
        memoryPeakBytes: 30n,
        memoryFileBytes: 10n,
        memoryAnonBytes: 10n,
        memorySwapBytes: 10n,
      },
      io: { ioReadBytes: 10n, ioWriteBytes: 20n, ioReadOperations: 10n, ioWriteOperations: 10n },
      network: {
        networkReceivedBytes: 30n,
        networkReceivedPackets: 10n,
        networkReceivedErrors: 10n,
        networkReceivedDropped: 10n,
        networkSentBytes: 40n,
        networkSentPackets: 10n,
        networkSentErrors: 10n,
        networkSentDropped: 10n,
      },
      pids: { pidsCurrent: 10n, pidsLimit: 20n },
      pressure: {
        cpu: { some: stall, full: stall },
        memory: { some: stall, full: stall },
        io: { some: stall, full: stall },
      },
    });
  });

  it.each([
    { origin: 'v1', source: Source.CGROUP_V1 },
    { origin: 'hybrid', source: Source.CGROUP_HYBRID },
    { origin: 'processes', source: Source.PROCESSES },
  ] as const)('converts the source $origin', ({ origin, source }) =>
    expect(toStats({ origin }).source).toBe(source),
  );

  it('leaves out unknown values and keeps 0', () => {
    const { cpu, memory, io, network, pids, pressure, source } = toStats({
      memory: { usageBytes: 5, swapBytes: 0 },
    });
    expect([cpu, io, network, pids, pressure, source]).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
      undefined,
      0,
    ]);
    expect([memory?.memorySwapBytes, memory?.memoryLimitBytes]).toEqual([0n, undefined]);
  });

  it('lists files that could not be read', () => {
    const problems = [new MalformedCgroupFileError('io.stat', 1, 'no device')];
    const sample = { source: 's', atMs: 0, pids: { current: 1 } };
    expect(toContainerStats(subject, { sample, problems }, clock).problems).toEqual([
      'io.stat:1: no device',
    ]);
  });
});
