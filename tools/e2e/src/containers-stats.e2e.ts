import { timestampMs } from '@bufbuild/protobuf/wkt';
import { ContainerStats_Source as Source, type ContainerStats } from '@cloudless/api';
import { QUICK, type RealCluster } from './support/cluster.js';
import {
  describeContainers,
  startContainerCluster,
  stopContainerCluster,
} from './support/containers.js';

const LIMIT_MILLIS = 200;
const MIB = 1_048_576;
/** Duration of the measurement: shorter spans vary with the CPU periods of 100 ms. */
const SPAN_MS = 5_000;

describeContainers('resource usage of a container', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await startContainerCluster(['zone-a']);
  });
  afterAll(() => stopContainerCluster(cluster));

  const run = async (name: string, script: string): Promise<string> => {
    const limits = { cpuMillis: LIMIT_MILLIS, memoryBytes: BigInt(64 * MIB), pids: 50 };
    const spec = {
      ...QUICK,
      image: 'busybox:1',
      command: ['sh', '-c', script],
      resources: { limits },
      terminationGracePeriod: { seconds: 0n },
    };
    await cluster.client.createWorkload({ name, spec });
    return (await cluster.waitUntilSettled(name)).status!.replicas[0]!.id;
  };
  const waitForSample = (replicaId: string): Promise<ContainerStats> =>
    cluster.agentClient.getContainerStats({ replicaId });

  it('is 200m within 10 % over 5 s for a busy loop with a limit of 200m', async () => {
    const replicaId = await run('busy', 'while :; do :; done');
    const first = await waitForSample(replicaId);
    let last = first;
    while (timestampMs(last.sampledAt!) - timestampMs(first.sampledAt!) < SPAN_MS)
      last = await waitForSample(replicaId);
    const spanMs = timestampMs(last.sampledAt!) - timestampMs(first.sampledAt!);
    const millis = Number(last.cpu!.cpuUsageNanos - first.cpu!.cpuUsageNanos) / 1_000 / spanMs;
    // On a busy machine the container may get less. In throttled periods it got its full share, so
    // the share of throttled periods scales the lower bound.
    const periods = last.cpu!.periods! - first.cpu!.periods!;
    const throttledShare =
      Number(last.cpu!.throttledPeriods! - first.cpu!.throttledPeriods!) / Number(periods);
    expect(millis).toBeLessThanOrEqual(LIMIT_MILLIS * 1.1);
    expect(millis).toBeGreaterThanOrEqual(LIMIT_MILLIS * 0.9 * throttledShare);
    expect(throttledShare).toBeGreaterThan(0.2);
    expect(last.cpu!.throttledNanos).toBeGreaterThan(first.cpu!.throttledNanos!);
  });

  it('covers CPU limit, memory, network and processes of the container alone', async () => {
    const replicaId = await run('quiet', 'sleep 1000');
    const stats = await waitForSample(replicaId);
    expect([Source.CGROUP_V1, Source.CGROUP_V2, Source.CGROUP_HYBRID]).toContain(stats.source);
    expect(stats).toMatchObject({
      workload: 'quiet',
      nodeId: 'agent-1',
      problems: [],
      cpu: { cpuLimitMillis: BigInt(LIMIT_MILLIS) },
      memory: { memoryLimitBytes: BigInt(64 * MIB) },
      pids: { pidsCurrent: 1n, pidsLimit: 50n },
    });
    expect(stats.memory!.memoryUsageBytes).toBeGreaterThan(0n);
    expect(stats.memory!.memoryUsageBytes).toBeLessThan(BigInt(64 * MIB));
    // an idle container sends only the packets of neighbour discovery
    expect(stats.network!.networkSentBytes).toBeLessThan(100_000n);
  });

  it('counts the network traffic of the container', async () => {
    const spec = { ...QUICK, image: 'nginx:alpine', ports: [{ name: 'http', containerPort: 80 }] };
    await cluster.client.createWorkload({ name: 'web', spec });
    const { id, endpoints } = (await cluster.waitUntilSettled('web')).status!.replicas[0]!;
    const before = await waitForSample(id);
    const { ip, port } = endpoints[0]!;
    const body = await (
      await fetch(`http://${ip}:${port}/`, { headers: { connection: 'close' } })
    ).text();
    const after = await waitForSample(id);
    expect(after.network!.networkSentBytes - before.network!.networkSentBytes).toBeGreaterThan(
      BigInt(body.length),
    );
    expect(after.network!.networkReceivedPackets).toBeGreaterThan(
      before.network!.networkReceivedPackets,
    );
  });

  it('is printed with requests and limits by cloudlessctl top', async () => {
    for (;;) {
      const { containers } = await cluster.agentClient.listContainerStats({ name: 'busy' });
      if (containers[0]?.cpuMillis !== undefined) break;
    }
    const { stdout, code } = await cluster.runCtl('top', 'replica', 'busy', '-o', 'wide');
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /\ndefault +busy +\S+ +agent-1 +\d+m +100m\/200m +\S+ +64Mi\/64Mi +1 .* \d+% /,
    );
  });
});
