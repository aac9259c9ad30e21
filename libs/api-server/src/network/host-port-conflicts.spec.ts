import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { createClient, type Client } from '@connectrpc/connect';
import {
  NetworkService,
  ReplicaStatus_Phase as ReplicaPhase,
  RolloutStatus_Phase as Phase,
  ServiceSpecSchema,
  ServiceSpec_Type as Type,
  WorkloadSpecSchema,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { createSeededRandom } from '@cloudless/base';
import { toVersionKeyId, type Transaction } from '@cloudless/cluster-state';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { requireHostPorts } from './host-port-conflicts.js';
import { putNewService } from './service-change.js';

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
const REFUSED = `host port ${NODE_PORT} of workload default/proxy is the node port of service default/web; use another host port`;

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

  it('a prediction of one workload names the service', async () => {
    await createWeb();
    const change = { name: 'proxy', spec: withHostPort(NODE_PORT) };
    await expect(bed.client.planWorkload(change)).rejects.toThrow(REFUSED);
  });

  it('a simulation of several changes names the workload and the service', async () => {
    await createWeb();
    const value = { name: 'proxy', spec: withHostPort(NODE_PORT) };
    const other = { name: 'other', spec: withHostPort(8080) };
    const changes = [other, value].map((each) => ({
      change: { case: 'apply' as const, value: each },
    }));
    await expect(bed.client.simulateCluster({ changes })).rejects.toThrow(REFUSED);
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

describe('host ports of earlier versions', () => {
  /** Creates a workload whose version 1 has the host port, and whose version 2 has another one. */
  const createVersions = async (control: MessageInitShape<typeof ControlRecordSchema>) => {
    const { uid } = await bed.client.createWorkload({
      name: 'proxy',
      spec: withHostPort(NODE_PORT),
    });
    await bed.client.updateWorkload({ name: 'proxy', spec: withHostPort(8080) });
    const record = create(ControlRecordSchema, { uid, ...control });
    await bed.state.commit(bed.state.transaction().put('control', uid, record));
    return uid;
  };
  const rollout = { version: 2, fromVersion: 1 };
  const ROLLED_OUT = { rolloutPhase: Phase.COMPLETED, activeVersion: 2, rollout };

  it.each([
    {
      name: 'no decision knows the newest version yet',
      control: {
        ...{ rolloutPhase: Phase.COMPLETED, activeVersion: 1 },
        rollout: { version: 1, fromVersion: 0 },
      },
    },
    {
      name: 'the newest version is rolled out',
      control: { rolloutPhase: Phase.IN_PROGRESS, activeVersion: 1, rollout },
    },
    {
      name: 'the rollout of the newest version has failed',
      control: { rolloutPhase: Phase.FAILED, activeVersion: 1, rollout },
    },
    {
      name: 'traffic is switched, and the rollout has not ended',
      control: { rolloutPhase: Phase.PAUSED, activeVersion: 2, rollout },
    },
  ])('are no node ports while a rollback can restore them: $name', async ({ control }) => {
    await createVersions(control);
    await expect(createWeb()).rejects.toThrow(
      `spec.ports[0].node_port: ${NODE_PORT} is a host port of version 1 of workload default/proxy, which a rollback can restore; complete the rollout of version 2, choose another port, or leave the field out`,
    );
    expect([...bed.state.view().nodePorts()].map(([id]) => id)).toEqual(['hostports']);
  });

  it('are no node ports while a replica of the version runs', async () => {
    const uid = await createVersions(ROLLED_OUT);
    await bed.putReplica(`${uid}-1`, { phase: ReplicaPhase.STOPPING, desiredRunning: false });
    await expect(createWeb()).rejects.toThrow(
      `spec.ports[0].node_port: ${NODE_PORT} is a host port of version 1 of workload default/proxy, which still has replicas; wait until they have stopped, choose another port, or leave the field out`,
    );
    await bed.updateReplica(`${uid}-1`, { phase: ReplicaPhase.STOPPED });
    await createWeb();
  });

  it.each([
    { name: 'no replica of the version exists', replica: undefined },
    { name: 'its replica is lost', replica: { phase: ReplicaPhase.RUNNING, lost: true } },
    { name: 'the replica has the newest version', replica: { version: 2 } },
  ])('can be node ports again when the rollout has completed and $name', async ({ replica }) => {
    const uid = await createVersions(ROLLED_OUT);
    if (replica !== undefined) await bed.putReplica(`${uid}-1`, replica);
    await createWeb();
  });

  it('are not chosen as node ports while a rollback can restore them', async () => {
    const control = { rolloutPhase: Phase.IN_PROGRESS, activeVersion: 1, rollout };
    const uid = await createVersions(control);
    const free = 31_000;
    const ports = Array.from({ length: 2_768 }, (_, index) => 30_000 + index)
      .filter((port) => port !== free)
      .map((hostPort) => ({ containerPort: 80, hostPort }));
    const earlier = bed.state.view().version(uid, 1)!;
    const version = { ...earlier, asWritten: create(WorkloadSpecSchema, { ports }) };
    await bed.state.commit(
      bed.state
        .transaction()
        .put('version', toVersionKeyId(uid, 1), create(VersionRecordSchema, version)),
    );
    const { spec } = await client.createService({ name: 'web', spec: withNodePort(0) });
    expect(spec?.ports[0]?.nodePort).toBe(free);
  });
});

describe('a host port and a node port of one transaction', () => {
  const giveHostPorts = (transaction: Transaction, ports: readonly number[], protocol = 0) =>
    requireHostPorts(bed.state.view(), transaction, {
      ...{ namespace: 'default', name: 'proxy', current: undefined },
      spec: create(WorkloadSpecSchema, {
        ports: ports.map((hostPort) => ({ containerPort: 80, hostPort, protocol })),
      }),
    });
  const giveNodePort = (transaction: Transaction, nodePort: number) => {
    const spec = create(ServiceSpecSchema, withNodePort(nodePort));
    const deps = { clock: bed.clock, random: createSeededRandom(1) };
    const service = { namespace: 'default', name: 'web', spec };
    return putNewService(deps, bed.state.view(), transaction, service, '').spec?.ports[0]?.nodePort;
  };

  it.each([
    {
      name: 'the host port first',
      act: (transaction: Transaction) => {
        giveHostPorts(transaction, [NODE_PORT]);
        giveNodePort(transaction, NODE_PORT);
      },
      message: `spec.ports[0].node_port: ${NODE_PORT} is a host port of workload default/proxy; choose another port, or leave the field out`,
    },
    {
      name: 'the node port first',
      act: (transaction: Transaction) => {
        giveNodePort(transaction, NODE_PORT);
        giveHostPorts(transaction, [NODE_PORT]);
      },
      message: `${REFUSED}, or change the node port of the service`,
    },
    {
      name: 'the node port first, which the coordinator chooses',
      act: (transaction: Transaction) =>
        giveHostPorts(transaction, [giveNodePort(transaction, 0) ?? 0]),
      message:
        /host port 3\d{4} of workload default\/proxy is the node port of service default\/web/,
    },
  ])('are refused when they are equal: $name', ({ act, message }) => {
    expect(() => act(bed.state.transaction())).toThrow(message);
  });

  it('are different when the coordinator chooses the node port', () => {
    const transaction = bed.state.transaction();
    const free = 31_000;
    const range = Array.from({ length: 2_768 }, (_, index) => 30_000 + index);
    giveHostPorts(
      transaction,
      range.filter((port) => port !== free),
    );
    expect(giveNodePort(transaction, 0)).toBe(free);
  });

  it('may be equal with different protocols, and in different transactions', () => {
    const transaction = bed.state.transaction();
    giveHostPorts(transaction, [NODE_PORT], UDP);
    expect(giveNodePort(transaction, NODE_PORT)).toBe(NODE_PORT);
    giveHostPorts(bed.state.transaction(), [NODE_PORT]);
  });
});
