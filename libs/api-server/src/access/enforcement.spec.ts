import { clone, create } from '@bufbuild/protobuf';
import { Code, ConnectError, createConnectRouter, type Client } from '@connectrpc/connect';
import {
  AgentService,
  CoordinatorService,
  Event_Category as Category,
  Event_Severity as Severity,
  ReplicaStatus_Phase as Phase,
  WatchWorkloadsResponse_Kind as WatchKind,
  fromConnectError,
  type WatchReplicasResponse,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  UserRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { toNameKeyId, toVersionKeyId } from '@cloudless/cluster-state';
import { ManualClock } from '@cloudless/base/testing';
import type { Grant } from '@cloudless/identity';
import { ACCESS_TABLE_SERVICES, getAccessRule } from '@cloudless/identity/authorization';
import { ApiTestBed } from '../testing/api-test-bed.js';
import {
  TestIdentity,
  createCertificateClient,
  createTokenClient,
} from '../testing/test-identity.js';

let identity: TestIdentity;
let bed: ApiTestBed;

beforeAll(async () => {
  identity = await TestIdentity.create(new ManualClock().wallTime());
});
beforeEach(async () => {
  bed = await ApiTestBed.open({ identity });
  await identity.putAuthority(bed);
  await putWorkload('shop', 'a');
  await putWorkload('bank', 'b');
});
afterEach(() => bed.stop());

/** Stores a workload `web` with one running replica `<uid>-0` and container `<uid>00…`. */
async function putWorkload(namespace: string, uid: string): Promise<void> {
  const transaction = bed.state
    .transaction()
    .put(
      'workload',
      uid,
      create(WorkloadRecordSchema, { uid, namespace, name: 'web', version: 1, generation: 1n }),
    )
    .put('name', toNameKeyId(namespace, 'web'), create(WorkloadRecordSchema, { uid }))
    .put('control', uid, create(ControlRecordSchema, { uid, nextSequence: 1n }))
    .put(
      'version',
      toVersionKeyId(uid, 1),
      create(VersionRecordSchema, { version: 1, template: { command: ['serve'] } }),
    )
    .createReplica(
      create(ReplicaRecordSchema, {
        id: `${uid}-0`,
        uid,
        version: 1,
        nodeId: 'n1',
        desiredRunning: true,
        phase: Phase.RUNNING,
        containerId: `c0c0c0c0c0c0${uid}`,
      }),
    )
    .event({
      severity: Severity.INFO,
      category: Category.WORKLOAD,
      reason: 'WorkloadCreated',
      message: `workload ${namespace}/web was created`,
      namespace,
      workload: 'web',
    });
  await bed.state.commit(transaction);
}

const at = (role: Grant['role'], namespace: string): Grant => ({ role, namespace });
let users = 0;
/** Creates a user with these roles and returns its client. */
async function asUser(...grants: readonly Grant[]): Promise<Client<typeof CoordinatorService>> {
  const token = await identity.putUser(bed, `user-${(users += 1)}`, grants);
  return createTokenClient(bed, CoordinatorService, token);
}
async function asAgentClient(...grants: readonly Grant[]): Promise<Client<typeof AgentService>> {
  const token = await identity.putUser(bed, `user-${(users += 1)}`, grants);
  return createTokenClient(bed, AgentService, token);
}
const failureOf = async (call: Promise<unknown>): Promise<ConnectError> => {
  const reason = await call.then(
    () => undefined,
    (cause: unknown) => cause,
  );
  expect(reason).toBeInstanceOf(ConnectError);
  return reason as ConnectError;
};
const firstOf = async (items: AsyncIterable<unknown>): Promise<unknown> => {
  for await (const item of items) return item;
  return undefined;
};

describe('access to objects of namespaces', () => {
  it('lists only workloads, replicas, events, containers and plans of permitted namespaces', async () => {
    const admin = await asUser(at('admin', ''));
    const [shop, bank] = ['shop', 'bank'].map((namespace) => ({
      change: { case: 'scale', value: { namespace, name: 'web', replicas: 2 } } as const,
    }));
    const shopPlan = await admin.createPlan({ changes: [shop!] });
    await admin.createPlan({ changes: [bank!] });
    await admin.createPlan({ changes: [shop!, bank!] });
    const viewer = await asUser(at('viewer', 'shop'));
    const { workloads } = await viewer.listWorkloads({});
    expect(workloads.map(({ namespace }) => namespace)).toEqual(['shop']);
    const replicas = await viewer.listReplicas({});
    expect(replicas.workloads.map(({ namespace }) => namespace)).toEqual(['shop']);
    const { events } = await viewer.listEvents({});
    expect(new Set(events.map(({ namespace }) => namespace))).toEqual(new Set(['shop']));
    const { plans } = await viewer.listPlans({});
    expect(plans.map(({ id }) => id)).toEqual([shopPlan.id]);
    const { containers } = await (await asAgentClient(at('viewer', 'shop'))).listContainers({});
    expect(containers.map(({ containerId }) => containerId)).toEqual(['c0c0c0c0c0c0a']);
    expect((await admin.listPlans({})).plans).toHaveLength(3);
  });

  it('refuses a named namespace, and tells programs which role is missing', async () => {
    const viewer = await asUser(at('viewer', 'shop'), at('admin', 'home'));
    const calls = [
      () => viewer.getWorkload({ namespace: 'bank', name: 'web' }),
      () => viewer.getWorkload({ namespace: 'bank', name: 'none' }),
      () => viewer.listWorkloads({ namespace: 'bank' }),
      () => viewer.listReplicas({ namespace: 'bank' }),
      () => viewer.listEvents({ namespace: 'bank' }),
      () => viewer.listEndpoints({ namespace: 'bank', name: 'web' }),
      () => firstOf(viewer.watchWorkloads({ namespace: 'bank' })),
      () => firstOf(viewer.watchReplicas({ namespace: 'bank' })),
      () => firstOf(viewer.watchEvents({ namespace: 'bank' })),
      () => firstOf(viewer.watchEndpoints({ namespace: 'bank', name: 'web' })),
      () => firstOf(viewer.streamLogs({ namespace: 'bank', name: 'web' })),
      () => viewer.scaleWorkload({ namespace: 'shop', name: 'web', replicas: 2 }),
      () => viewer.execCommand({ namespace: 'shop', name: 'web', command: ['ls'] }),
      () => viewer.getNode({ nodeId: 'n1' }),
    ];
    for (const call of calls) {
      const error = await failureOf(call());
      expect([String(call), Code[error.code]]).toEqual([String(call), 'PermissionDenied']);
    }
    const error = fromConnectError(
      await failureOf(viewer.scaleWorkload({ namespace: 'shop', name: 'web', replicas: 2 })),
    );
    expect(error.message).toBe(
      `user/user-${users} does not have the role operator in namespace "shop"; ask an administrator for the role`,
    );
    expect(error.metadata).toEqual({
      principal: `user/user-${users}`,
      rpc: 'ScaleWorkload',
      role: 'operator',
      namespace: 'shop',
    });
  });

  it('answers the id of a forbidden object exactly like an unknown id', async () => {
    const admin = await asUser(at('admin', ''));
    const bankChange = {
      change: { case: 'scale', value: { namespace: 'bank', name: 'web', replicas: 2 } },
    } as const;
    const plan = await admin.createPlan({ changes: [bankChange] });
    const bankEvent = bed.events('WorkloadCreated').find(({ namespace }) => namespace === 'bank')!;
    const operator = await asUser(at('operator', 'shop'));
    const agent = await asAgentClient(at('operator', 'shop'));
    const rows: readonly [string, string, (id: string) => Promise<unknown>][] = [
      ['b-0', 'x-0', (replicaId) => firstOf(operator.streamLogs({ replicaId }))],
      ['b-0', 'x-0', (replicaId) => operator.execCommand({ replicaId, command: ['ls'] })],
      ['b-0', 'x-0', (replicaId) => agent.getContainerStats({ replicaId })],
      [
        'c0c0c0c0c0c0b',
        'c0c0c0c0c0c0f',
        (containerId) => firstOf(operator.streamLogs({ containerId })),
      ],
      [
        'c0c0c0c0c0c0b',
        'c0c0c0c0c0c0f',
        (containerId) => agent.getContainerStatus({ containerId }),
      ],
      [plan.id, '0123456789abcdef', (id) => operator.getPlan({ id })],
      [plan.id, '0123456789abcdef', (id) => operator.executePlan({ id })],
      [bankEvent.id, '0000000009-0000000009', (relatedTo) => operator.listEvents({ relatedTo })],
    ];
    for (const [forbidden, unknown, call] of rows) {
      const [a, b] = [await failureOf(call(forbidden)), await failureOf(call(unknown))];
      expect(Code[a.code]).toBe('NotFound');
      expect(a.message.replaceAll(forbidden, 'ID')).toBe(b.message.replaceAll(unknown, 'ID'));
      expect(JSON.stringify(a.details.length)).toBe(JSON.stringify(b.details.length));
    }
  });

  it('does not count containers of other namespaces as matches of an ambiguous prefix', async () => {
    const agent = await asAgentClient(at('viewer', 'shop'));
    const error = await failureOf(agent.getContainerStatus({ containerId: 'c0c0c0c0c0c0' }));
    // The container of the permitted namespace was found; its node is not connected.
    expect(Code[error.code]).toBe('Unavailable');
  });

  it('filters every page, whoever got the page token', async () => {
    const admin = await asUser(at('viewer', ''));
    const { nextPageToken } = await admin.listWorkloads({ pageSize: 1 });
    const viewer = await asUser(at('viewer', 'bank'));
    const page = await viewer.listWorkloads({ pageSize: 1, pageToken: nextPageToken });
    expect(page.workloads).toEqual([]);
    const first = await admin.listReplicas({ pageSize: 1 });
    const second = await viewer.listReplicas({ pageSize: 1, pageToken: first.nextPageToken });
    expect(second.workloads).toEqual([]);
  });

  it('sends a watch of replicas only those of permitted namespaces, also after a change', async () => {
    const viewer = await asUser(at('viewer', 'shop'));
    const items = viewer.watchReplicas({})[Symbol.asyncIterator]();
    const read = async () =>
      ((await items.next()) as IteratorYieldResult<WatchReplicasResponse>).value;
    const first = await read();
    expect(first.workloads.map(({ namespace, replicas }) => [namespace, replicas.length])).toEqual([
      ['shop', 1],
    ]);
    expect(await read()).toMatchObject({ synced: true, workloads: [] });
    await bed.updateReplica('b-0', { restarts: 1 });
    await bed.updateReplica('a-0', { restarts: 1 });
    expect((await read()).workloads).toMatchObject([
      { namespace: 'shop', replicas: [{ id: 'a-0' }] },
    ]);
    await items.return?.();
  });

  it('sends a watch only changes of permitted namespaces, and ends it when the roles change', async () => {
    const viewer = await asUser(at('viewer', 'shop'));
    const items = viewer.watchWorkloads({})[Symbol.asyncIterator]();
    const namespaces: string[] = [];
    for (let item = await items.next(); ; item = await items.next()) {
      if (item.done === true || item.value.kind === WatchKind.SYNCED) break;
      namespaces.push(item.value.workload?.namespace ?? '');
    }
    expect(namespaces).toEqual(['shop']);
    const caller = bed.callers.at(-1)!;
    caller.check();
    const name = `user-${users}`;
    const record = clone(UserRecordSchema, bed.state.view().user(name)!.value);
    record.user!.grants = [
      ...record.user!.grants,
      { ...record.user!.grants[0]!, namespace: 'bank' },
    ];
    await bed.state.commit(bed.state.transaction().put('user', name, record));
    expect(() => caller.check()).toThrow(
      `the roles of user/${name} have changed; start again from the beginning`,
    );
    await items.return?.();
  });

  it('demands for each change of a plan what the call for this change demands', async () => {
    const operator = await asUser(at('operator', 'shop'));
    const scale = (namespace: string) =>
      ({ change: { case: 'scale', value: { namespace, name: 'web', replicas: 2 } } }) as const;
    const drain = { change: { case: 'cordon', value: { nodeId: 'n1' } } } as const;
    await bed.putNode('n1');
    for (const changes of [[scale('shop'), scale('bank')], [drain]])
      for (const validateOnly of [false, true])
        expect(Code[(await failureOf(operator.createPlan({ changes, validateOnly }))).code]).toBe(
          'PermissionDenied',
        );
    const { id } = await operator.createPlan({ changes: [scale('shop')] });
    const viewer = await asUser(at('viewer', 'shop'));
    expect((await viewer.getPlan({ id })).id).toBe(id);
    expect(Code[(await failureOf(viewer.executePlan({ id }))).code]).toBe('PermissionDenied');
    await operator.executePlan({ id });
  });

  it('does not give the response of a request id to another caller', async () => {
    const scale = { namespace: 'shop', name: 'web', replicas: 2, requestId: 'request-1' };
    const operator = await asUser(at('operator', 'shop'));
    await operator.scaleWorkload(scale);
    await operator.scaleWorkload(scale);
    const other = await asUser(at('operator', 'shop'));
    expect((await failureOf(other.scaleWorkload(scale))).rawMessage).toContain(
      'request_id: was used by another caller within the last hour; use a new one',
    );
    const stranger = await asUser(at('operator', 'bank'));
    expect(Code[(await failureOf(stranger.scaleWorkload(scale))).code]).toBe('PermissionDenied');
  });

  it('ends an open log stream when the role in its namespace is revoked', async () => {
    const viewer = await asUser(at('viewer', 'shop'), at('viewer', 'bank'));
    await failureOf(firstOf(viewer.streamLogs({ replicaId: 'a-0' })));
    const caller = bed.callers.at(-1)!;
    caller.check();
    const name = `user-${users}`;
    const record = clone(UserRecordSchema, bed.state.view().user(name)!.value);
    record.user!.grants = record.user!.grants.filter(({ namespace }) => namespace === 'bank');
    await bed.state.commit(bed.state.transaction().put('user', name, record));
    expect(() => caller.check()).toThrow('does not have the role viewer in namespace "shop"');
  });
});

describe('routes', () => {
  it('serve only RPCs that have a row in the access table, and every RPC of their services', () => {
    const router = createConnectRouter();
    bed.registerRoutes(router);
    expect(router.handlers.length).toBeGreaterThan(60);
    for (const { method } of router.handlers)
      expect([method.name, getAccessRule(method) !== undefined]).toEqual([method.name, true]);
    const served = new Set(router.handlers.map(({ method }) => method.parent.typeName));
    const missing = ACCESS_TABLE_SERVICES.filter(({ typeName }) => !served.has(typeName));
    // The RPC server adds these.
    expect(missing.map(({ typeName }) => typeName)).toEqual([
      'grpc.health.v1.Health',
      'grpc.reflection.v1.ServerReflection',
      'grpc.reflection.v1alpha.ServerReflection',
    ]);
  });
});

describe('access of nodes', () => {
  const asNode = async (id: string) =>
    createCertificateClient(
      bed,
      CoordinatorService,
      `connection-${id}`,
      await identity.putNode(bed, id),
    );
  const hello = (nodeId: string) => ({
    nodeId,
    instanceId: `instance-of-${nodeId}-0123456789`,
    clusterId: bed.state.clusterId,
    protocolMin: 1,
    protocolMax: 2,
  });

  it('lets a node act only for itself', async () => {
    const a = await asNode('a1');
    await asNode('b1');
    await a.heartbeat({ hello: hello('a1'), inventory: { last: true } });
    async function* open(nodeId: string) {
      yield { message: { case: 'hello', value: hello(nodeId) } } as const;
    }
    const calls = [
      () => a.heartbeat({ hello: hello('b1'), inventory: { last: true } }),
      () => a.renewLease({ nodeId: 'b1', sessionId: 'x', loopAge: { nanos: 1 } }),
      () => firstOf(a.session(open('b1'))),
    ];
    for (const call of calls)
      expect((await failureOf(call())).rawMessage).toBe('node/a1 may not act for node "b1"');
    expect(bed.nodes.status('b1').alive).toBe(false);
  });

  it('accepts the id of a tunnel only from the node for which the tunnel was requested', async () => {
    const [a, b] = [await asNode('a1'), await asNode('n1')];
    const session = b
      .session(
        (async function* () {
          yield { message: { case: 'hello', value: hello('n1') } } as const;
          yield {
            message: {
              case: 'inventory',
              value: {
                last: true,
                replicas: [
                  { replicaId: 'a-0', phase: Phase.RUNNING, containerId: 'c0c0c0c0c0c0a' },
                ],
              },
            },
          } as const;
          await new Promise(() => undefined);
        })(),
      )
      [Symbol.asyncIterator]();
    await session.next();
    await bed.settle();
    const operator = await asUser(at('operator', 'shop'));
    const result = failureOf(operator.execCommand({ replicaId: 'a-0', command: ['ls'] }));
    let tunnelId = '';
    while (tunnelId === '') {
      const { value } = await session.next();
      const message = value?.message;
      if (message?.case === 'openTunnel') tunnelId = message.value.tunnelId;
    }
    const open = (client: Client<typeof CoordinatorService>) =>
      firstOf(
        client.tunnel(
          (async function* () {
            yield { frame: { case: 'tunnelId', value: tunnelId } } as const;
            yield { frame: { case: 'error', value: { code: 5, message: 'gone' } } } as const;
          })(),
        ),
      );
    expect((await failureOf(open(a))).rawMessage).toBe(
      'no request waits for this tunnel; it may have timed out',
    );
    await open(b);
    expect((await result).rawMessage).toBe('gone');
    void session.return?.();
  });

  it('does not let a node call what is for users', async () => {
    const node = await asNode('a1');
    expect(Code[(await failureOf(node.listWorkloads({}))).code]).toBe('PermissionDenied');
    expect(Code[(await failureOf(node.getNode({ nodeId: 'a1' }))).code]).toBe('PermissionDenied');
  });

  it('records refused enrolments at most ten at once, from however many addresses they come', async () => {
    const { CONNECTION_HEADER } = await import('../testing/scripted-agent.js');
    for (let turn = 1; turn <= 30; turn += 1) {
      const headers = { [CONNECTION_HEADER]: 'x'.repeat(turn) };
      const request = { nodeId: 'n9', instanceId: 'instance-of-n9-0123456789', token: 'cl1.x' };
      await failureOf(bed.client.enrollNode(request, { headers }));
    }
    expect(bed.events('EnrollNode')).toHaveLength(10);
  });

  it('names the principal and the credential in audit records', async () => {
    const operator = await asUser(at('operator', 'shop'));
    await operator.scaleWorkload({ namespace: 'shop', name: 'web', replicas: 3 });
    await failureOf(operator.scaleWorkload({ namespace: 'bank', name: 'web', replicas: 3 }));
    const audits = bed.events('ScaleWorkload').map(({ audit }) => audit);
    expect(audits).toMatchObject([
      { principal: `user/user-${users}`, result: 'ok' },
      { principal: `user/user-${users}`, result: 'permission_denied' },
    ]);
    expect(audits[0]?.credentialId).toMatch(/^[a-z0-9]{12}$/);
  });
});
