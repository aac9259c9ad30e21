import { create } from '@bufbuild/protobuf';
import { createClient, type Client } from '@connectrpc/connect';
import { NetworkService, ServiceSpec_Type as Type } from '@cloudless/api';
import { WorkloadRecordSchema } from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
let client: Client<typeof NetworkService>;

beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createClient(NetworkService, bed.transport);
});
afterEach(() => bed.stop());

const NODE_PORT = 30_777;
const UDP = 1;
const withHostPort = (hostPort: number, protocol = 0) => ({
  image: 'nginx',
  ports: [{ name: 'http', containerPort: 80, hostPort, protocol }],
});
const withNodePort = (nodePort: number, protocol = 0) => ({
  ...{ type: Type.NODE_PORT, ports: [{ port: 80, nodePort, protocol }] },
});
const createWeb = () => client.createService({ name: 'web', spec: withNodePort(NODE_PORT) });
const REFUSED = `host port ${NODE_PORT} is the node port of service default/web; use another host port`;

/**
 * Completes `action` between the plan and the commit of the next change.
 * @returns A function that returns the number of commits so far, without those of `action`.
 */
function beforeNextCommit(action: () => Promise<unknown>): () => number {
  const { state } = bed;
  const commit = state.commitObserved.bind(state);
  let count = 0;
  let isActing = false;
  state.commitObserved = async (transaction) => {
    if (isActing) return commit(transaction);
    count += 1;
    if (count === 1) {
      isActing = true;
      await action();
      isActing = false;
    }
    return commit(transaction);
  };
  return () => count;
}

describe('host ports of workloads and node ports of services', () => {
  it.each([
    ['a host port', withHostPort(NODE_PORT)],
    [
      'a container port in the network of the node',
      {
        image: 'nginx',
        network: { hostNetwork: true },
        ports: [{ name: 'http', containerPort: NODE_PORT }],
      },
    ],
  ])('a workload cannot have a node port as %s', async (_, spec) => {
    await createWeb();
    await expect(bed.client.createWorkload({ name: 'proxy', spec })).rejects.toThrow(REFUSED);
    await bed.client.createWorkload({ name: 'proxy', spec: withHostPort(8080) });
    await expect(bed.client.updateWorkload({ name: 'proxy', spec })).rejects.toThrow(REFUSED);
  });

  it('a plan names the service before anything changes', async () => {
    await createWeb();
    const change = { name: 'proxy', spec: withHostPort(NODE_PORT) };
    const plan = bed.client.createPlan({
      changes: [{ change: { case: 'apply' as const, value: change } }],
    });
    await expect(plan).rejects.toThrow(REFUSED);
  });

  it('an undo does not bring back a host port that is a node port by now', async () => {
    await bed.client.createWorkload({ name: 'proxy', spec: withHostPort(NODE_PORT) });
    await bed.client.updateWorkload({ name: 'proxy', spec: withHostPort(8080) });
    await createWeb();
    await expect(bed.client.undoRollout({ name: 'proxy', toVersion: 1 })).rejects.toThrow(REFUSED);
  });

  it('a service cannot have a host port as its node port', async () => {
    await bed.client.createWorkload({ name: 'proxy', spec: withHostPort(NODE_PORT) });
    await expect(createWeb()).rejects.toThrow(
      `spec.ports[0].node_port: ${NODE_PORT} is a host port of workload default/proxy; choose another port, or leave the field out`,
    );
  });

  it('ports of different protocols are different ports', async () => {
    await bed.client.createWorkload({ name: 'proxy', spec: withHostPort(NODE_PORT, UDP) });
    await createWeb();
    await expect(
      client.createService({ name: 'dns', spec: withNodePort(NODE_PORT, UDP) }),
    ).rejects.toThrow('is a host port of workload default/proxy');
  });

  it('one of a workload and a service that are created at the same time gets the port', async () => {
    const results = await Promise.allSettled([
      createWeb(),
      bed.client.createWorkload({ name: 'proxy', spec: withHostPort(NODE_PORT) }),
    ]);
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
  });

  it.each([
    { first: 'workload', then: 'service' },
    { first: 'service', then: 'workload' },
  ])(
    'a $then does not get the port that a $first has got since the $then was checked',
    async ({ first }) => {
      const createProxy = () =>
        bed.client.createWorkload({ name: 'proxy', spec: withHostPort(NODE_PORT) });
      const [createFirst, createSecond, refusal] =
        first === 'workload'
          ? [createProxy, createWeb, 'is a host port of workload default/proxy']
          : [createWeb, createProxy, REFUSED];
      beforeNextCommit(createFirst);
      await expect(createSecond()).rejects.toThrow(refusal);
      expect([...bed.state.view().workloads()]).toHaveLength(first === 'workload' ? 1 : 0);
      expect([...bed.state.view().services()]).toHaveLength(first === 'workload' ? 0 : 1);
    },
  );

  it('a change of a service without a new node port does not wait for a new host port', async () => {
    await createWeb();
    const countCommits = beforeNextCommit(() =>
      bed.client.createWorkload({ name: 'proxy', spec: withHostPort(NODE_PORT + 1) }),
    );
    await client.updateService({ name: 'web', labels: { tier: 'front' } });
    expect(countCommits()).toBe(1);
  });

  it('the coordinator chooses no host port as a node port', async () => {
    const free = 31_000;
    const ports = Array.from({ length: 2_768 }, (_, index) => 30_000 + index)
      .filter((port) => port !== free)
      .map((hostPort) => ({ containerPort: 80, hostPort }));
    const workload = create(WorkloadRecordSchema, { uid: 'w', name: 'many', spec: { ports } });
    await bed.state.commit(bed.state.transaction().put('workload', 'w', workload));
    const { spec } = await client.createService({ name: 'web', spec: withNodePort(0) });
    expect(spec?.ports[0]?.nodePort).toBe(free);
  });
});
