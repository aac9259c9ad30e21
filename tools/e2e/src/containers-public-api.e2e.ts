import { createGrpcTransport } from '@connectrpc/connect-node';
import {
  ContainerStatus_State as State,
  createAgentClient,
  type EndpointSet,
} from '@cloudless/api';
import { COORDINATOR, createBufCurl, plainHttp } from './support/calls.js';
import { QUICK, type RealCluster } from './support/cluster.js';
import {
  listContainers,
  describeContainers,
  fetchText,
  startContainerCluster,
  stopContainerCluster,
} from './support/containers.js';

/** The body of the published CreateWorkload call, unchanged (CLD-REQ-080). */
const CALL = { namespace: 'default', name: 'test', spec: { image: 'nginx:alpine', replicas: 2 } };
const WELCOME = /Welcome to nginx!/;

describeContainers('a coordinator with container nodes', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await startContainerCluster();
  });
  afterAll(() => stopContainerCluster(cluster));

  const callers = [plainHttp, createBufCurl('connect'), createBufCurl('grpc')];
  it.each(callers.map((caller) => ({ caller, name: caller.name })))(
    'runs the published CreateWorkload call through $name: both replicas answer on port 80',
    async ({ caller }) => {
      const { code, message, items } = await caller.call(
        cluster.url,
        `${COORDINATOR}/CreateWorkload`,
        CALL,
      );
      expect({
        code,
        message,
        spec: (items[0] as { spec?: unknown } | undefined)?.spec,
      }).toMatchObject({
        code: 'ok',
        message: '',
        spec: CALL.spec,
      });
      const workload = await cluster.waitUntilSettled('test');
      expect(new Set(workload.status!.replicas.map(({ nodeId }) => nodeId))).toEqual(
        new Set(['agent-1', 'agent-2']),
      );
      const containers = await listContainers(cluster, workload);
      expect(containers).toMatchObject(
        workload.status!.replicas.map(({ id, nodeId }) => ({
          replicaId: id,
          nodeId,
          state: State.RUNNING,
          runtime: 'cri',
        })),
      );
      expect(new Set(containers.map(({ ip }) => ip)).size).toBe(2);
      for (const { ip } of containers) expect(await fetchText(`http://${ip}:80/`)).toMatch(WELCOME);
      expect(
        (
          await caller.call(cluster.url, `${COORDINATOR}/DeleteWorkload`, {
            namespace: 'default',
            name: 'test',
          })
        ).code,
      ).toBe('ok');
      await cluster.waitUntilDeleted('test');
    },
  );

  it('lists a declared port as endpoints on the addresses that the agents report', async () => {
    const spec = { ...QUICK, ...CALL.spec, ports: [{ name: 'http', containerPort: 80 }] };
    await cluster.client.createWorkload({ name: 'web', spec });
    const workload = await cluster.waitUntilSettled('web');
    const { endpoints } = await waitForEndpoints('web', 2);
    const addresses = (await listContainers(cluster, workload)).map(({ ip }) => ip);
    expect(endpoints.map(({ ip, port }) => `${ip}:${port}`).sort()).toEqual(
      addresses.map((ip) => `${ip}:80`).sort(),
    );
    for (const { ip, port } of endpoints)
      expect(await fetchText(`http://${ip}:${port}/`)).toMatch(WELCOME);
    for (const { containerId, nodeId, endpoints: replicaEndpoints } of workload.status!.replicas) {
      const { address } = await cluster
        .requireAgent(nodeId)
        .waitForLog('agent started, connecting to coordinators');
      const agent = createAgentClient(
        createGrpcTransport({ baseUrl: `http://${String(address)}` }),
      );
      expect((await agent.getContainerStatus({ containerId })).ip).toBe(replicaEndpoints[0]!.ip);
    }
  });

  async function waitForEndpoints(name: string, count: number): Promise<EndpointSet> {
    const watch = new AbortController();
    try {
      for await (const set of cluster.client.watchEndpoints({ name }, { signal: watch.signal })) {
        if (set.endpoints.length === count) return set;
      }
    } finally {
      watch.abort();
    }
    throw new Error(`the watch of the endpoints of ${name} ended`);
  }
});
