import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  Condition_Type,
  ConditionSchema,
  EndpointHealth_Status,
  NodeSchema,
  NodeStatus_Phase,
  Port_Protocol,
  ServiceCondition_Type,
  ServiceEndpointSchema,
  ServicePortSchema,
  ServiceSchema,
  ServiceSpec_SessionAffinity,
  ServiceSpec_Type,
  LoadBalancerConfig_Algorithm,
  type CreateServiceRequest,
  type Node,
  type ServiceEndpoint,
  type UpdateLoadBalancerConfigRequest,
  type UpdateServiceRequest,
} from '@cloudless/api';
import { NOW_MS, runCli, type CliOptions } from '../../testing/run-cli.js';
import { traceSteps } from './trace-service.js';

const WEB = create(ServiceSchema, {
  namespace: 'default',
  name: 'web',
  uid: 'aa',
  createdAt: timestampFromMs(NOW_MS - 60_000),
  spec: {
    workload: 'web',
    ports: [{ name: 'http', port: 80, targetPort: '8080', protocol: Port_Protocol.TCP }],
  },
  status: {
    clusterIp: '10.96.0.20',
    dnsName: 'web.default.svc.cloudless.internal',
    readyEndpoints: 1,
    totalEndpoints: 2,
  },
  loadBalancer: { algorithm: LoadBalancerConfig_Algorithm.RANDOM_TWO, localityAware: true },
});
const anEndpoint = (overrides: Partial<ServiceEndpoint> = {}): ServiceEndpoint =>
  create(ServiceEndpointSchema, {
    id: 'aa-1-http',
    namespace: 'default',
    service: 'web',
    portName: 'http',
    address: '10.0.0.1',
    port: 8080,
    nodeId: 'n1',
    zone: 'z1',
    health: { status: EndpointHealth_Status.HEALTHY },
    ...overrides,
  } as object);
const UNREADY = anEndpoint({
  id: 'aa-2-http',
  nodeId: 'n2',
  health: {
    ...anEndpoint().health,
    status: EndpointHealth_Status.UNHEALTHY,
    reason: 'readiness probe: connection refused',
  } as never,
});
const node = (
  id: string,
  phase = NodeStatus_Phase.READY,
  zone = '',
): ReturnType<typeof create<typeof NodeSchema>> =>
  create(NodeSchema, { id, zone, status: { phase } });
const withoutProxy = (id: string): Node =>
  create(NodeSchema, { id, status: { phase: NodeStatus_Phase.READY, networkProxy: false } });

const network: CliOptions['network'] = {
  getService: ({ name }) => {
    if (name === 'web') return WEB;
    throw new ConnectError(`service "default/${name}" not found`, Code.NotFound);
  },
  listServices: () => ({ services: [WEB], nextPageToken: '', revision: 1n }),
  listEndpoints: () => ({ endpoints: [anEndpoint(), UNREADY], nextPageToken: '', revision: 1n }),
};

describe('service create and update', () => {
  it.each<[string, string[], object]>([
    [
      'a workload and a port',
      ['--workload', 'web', '--port', '80'],
      {
        spec: {
          workload: 'web',
          ports: [{ port: 80, name: '', targetPort: '', protocol: Port_Protocol.TCP }],
        },
      },
    ],
    [
      'labels, named ports and UDP',
      ['--to-labels', 'app=shop', '--port', 'http=80:8080', '--port', 'dns=53/udp'],
      {
        spec: {
          selector: { app: 'shop' },
          ports: [
            { name: 'http', port: 80, targetPort: '8080' },
            { name: 'dns', port: 53, protocol: Port_Protocol.UDP },
          ],
        },
      },
    ],
    [
      'a node port, affinity and an algorithm',
      [
        '--port',
        '80',
        '--type',
        'NodePort',
        '--session-affinity',
        '1h',
        '--algorithm',
        'source-hash',
      ],
      {
        spec: {
          type: ServiceSpec_Type.NODE_PORT,
          sessionAffinity: ServiceSpec_SessionAffinity.CLIENT_IP,
          sessionAffinityTimeout: { seconds: 3_600n },
        },
        loadBalancer: { algorithm: LoadBalancerConfig_Algorithm.SOURCE_HASH },
      },
    ],
    [
      'an external name',
      ['--external-name', 'wiki.example.org'],
      { spec: { externalName: 'wiki.example.org' } },
    ],
    ['no virtual address', ['--port', '80', '--headless'], { spec: { headless: true } }],
  ])('sends %s', async (_title, flags, expected) => {
    const requests: CreateServiceRequest[] = [];
    const result = await runCli(['service', 'create', 'web', ...flags], {
      network: {
        createService: (request) => {
          requests.push(request);
          return WEB;
        },
      },
    });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toBe(
      'service default/web: created (web.default.svc.cloudless.internal, 10.96.0.20)\n',
    );
    expect(requests).toMatchObject([{ namespace: 'default', name: 'web', ...expected }]);
    const { proxyProtocol } = requests[0]?.spec ?? {};
    expect(proxyProtocol).toBe(false);
  });

  it('prints a note for each reason why the service will not work, not for unready replicas', async () => {
    const createWith = (conditions: object[]) =>
      runCli(['service', 'create', 'web', '--port', '80'], {
        network: {
          createService: () =>
            create(ServiceSchema, {
              namespace: 'default',
              name: 'web',
              status: { conditions },
            } as never),
        },
      });
    const condition = (type: ServiceCondition_Type, reason: string, message: string) => ({
      ...{ type, reason, message, holds: false },
    });
    const { HAS_ENDPOINTS, PORTS_MATCH, NETWORK_PROXY_PRESENT } = ServiceCondition_Type;
    expect(
      await createWith([
        condition(HAS_ENDPOINTS, 'NoWorkloadSelected', 'no such workload'),
        condition(PORTS_MATCH, 'PortsDoNotMatch', 'no such port'),
        condition(NETWORK_PROXY_PRESENT, 'NoNetworkProxy', 'no proxy'),
      ]),
    ).toMatchObject({
      exitCode: 0,
      stdout:
        'service default/web: created\nnote: no such workload\nnote: no such port\nnote: no proxy\n',
    });
    expect(
      await createWith([condition(HAS_ENDPOINTS, 'NoReadyReplicas', '2 replicas start')]),
    ).toMatchObject({ stdout: 'service default/web: created\n' });
  });

  it.each([
    [[], 'give at least one --port, such as --port 80, or --external-name'],
    [['--port', '0'], '--port: a port is a number from 1 to 65535, got 0'],
    [['--port', 'http=99999:80'], '--port: a port is a number from 1 to 65535, got 99999'],
    [['--port', 'x'], '--port: expected [name=]port[:target][/udp]'],
    [['--port', '80', '--type', 'nodport'], 'did you mean NodePort?'],
    [['--port', '80', '--workload', 'a', '--to-labels', 'b=c'], 'give one of them'],
  ])('refuses %j: %s', async (flags, message) => {
    const { exitCode, stderr } = await runCli(['service', 'create', 'web', ...flags], { network });
    expect({ exitCode, stderr }).toEqual({ exitCode: 2, stderr: expect.stringContaining(message) });
  });

  it('changes only what flags set, in the spec and in the balancing', async () => {
    const updates: UpdateServiceRequest[] = [];
    const configs: UpdateLoadBalancerConfigRequest[] = [];
    const argv = [
      'service',
      'update',
      'web',
      '--port',
      '81',
      '--max-connections',
      '100',
      '--no-proxy-protocol',
    ];
    const { exitCode } = await runCli(argv, {
      network: {
        ...network,
        updateService: (request) => {
          updates.push(request);
          return WEB;
        },
        updateLoadBalancerConfig: (request) => {
          configs.push(request);
          return request.config ?? {};
        },
      },
    });
    expect(exitCode).toBe(0);
    expect(updates).toMatchObject([
      {
        name: 'web',
        updateMask: { paths: ['ports', 'proxy_protocol'] },
        spec: { ports: [{ port: 81 }] },
      },
    ]);
    expect(configs).toMatchObject([
      {
        service: 'web',
        updateMask: { paths: ['max_connections'] },
        config: { maxConnections: 100 },
      },
    ]);
  });

  it('refuses an update without flags', async () => {
    expect(await runCli(['service', 'update', 'web'], { network })).toMatchObject({
      exitCode: 2,
      stderr: 'cloudlessctl: nothing to change: give at least one flag\n',
    });
  });
});

describe('lists and details of services', () => {
  it.each(['service', 'network service'])('%s list prints a table', async (group) => {
    const { stdout } = await runCli([...group.split(' '), 'list'], { network });
    expect(stdout).toBe(
      [
        'NAMESPACE   NAME   TYPE        ADDRESS      PORTS          READY   AGE\n',
        'default     web    ClusterIP   10.96.0.20   http=80:8080   1/2     60s\n',
      ].join(''),
    );
  });

  it('network endpoint list shows why an endpoint receives nothing', async () => {
    const { stdout } = await runCli(['network', 'endpoint', 'list', 'web'], { network });
    expect(stdout).toContain('10.0.0.1:8080   Healthy');
    expect(stdout).toContain('readiness probe: connection refused');
  });

  it('service describe shows fields, conditions and endpoints', async () => {
    const { stdout, exitCode } = await runCli(['service', 'describe', 'web'], { network });
    expect(exitCode).toBe(0);
    for (const text of [
      'web.default.svc.cloudless.internal',
      'RandomTwo',
      'nearest first',
      'aa-2-http',
    ])
      expect(stdout).toContain(text);
  });

  it('suggests a similar name for an unknown service', async () => {
    expect(await runCli(['service', 'describe', 'wbe'], { network })).toMatchObject({
      exitCode: 3,
      stderr: expect.stringContaining('did you mean web?'),
    });
  });

  it('service resolve shows the address and the endpoints of the zone', async () => {
    let zone = '';
    const { stdout } = await runCli(['service', 'resolve', 'web', '--from-zone', 'z1'], {
      network: {
        resolveService: ({ callerZone }) => {
          zone = callerZone;
          return {
            dnsName: 'web.default.svc.cloudless.internal',
            virtualIp: '10.96.0.20',
            externalName: '',
            endpoints: [anEndpoint()],
          };
        },
      },
    });
    expect(zone).toBe('z1');
    expect(stdout).toContain('10.96.0.20');
    expect(stdout).toContain('Endpoints, nearest first:');
  });

  it('service delete names each service', async () => {
    const { stdout } = await runCli(['service', 'delete', 'web', 'shop/api'], {
      network: { deleteService: () => ({}) },
    });
    expect(stdout).toBe('service default/web: deleted\nservice shop/api: deleted\n');
  });
});

describe('explain of a service', () => {
  it.each([
    [
      'the message of the condition',
      {
        workload: 'web',
        conditions: [
          {
            type: ServiceCondition_Type.HAS_ENDPOINTS,
            holds: false,
            reason: 'NoReplicaReady',
            message: '2 replicas start',
          },
        ],
      },
      'service default/web has no endpoint that receives connections: 2 replicas start',
    ],
    [
      'the missing selection',
      { workload: '', conditions: [] },
      'connections: the service selects no workload, and no address is registered',
    ],
  ])('says %s', async (_title, { workload, conditions }, expected) => {
    const service = create(ServiceSchema, {
      namespace: 'default',
      name: 'web',
      spec: { workload },
      status: { conditions },
    });
    const { stdout, exitCode } = await runCli(['explain', 'service/web'], {
      network: {
        getService: () => service,
        listEndpoints: () => ({ endpoints: [], nextPageToken: '', revision: 1n }),
      },
    });
    expect(exitCode).toBe(0);
    expect(stdout).toContain(expected);
  });
});

describe('explain of a service in a cluster without network proxies', () => {
  const { NETWORK_PROXY_PRESENT, EXTERNAL_IPS_SERVED } = ServiceCondition_Type;
  it.each([
    { condition: 'NETWORK_PROXY_PRESENT', type: NETWORK_PROXY_PRESENT },
    { condition: 'EXTERNAL_IPS_SERVED', type: EXTERNAL_IPS_SERVED },
  ])('says with $condition false that no node has a network proxy', async ({ type }) => {
    const service = create(ServiceSchema, {
      ...{ namespace: 'default', name: 'web', spec: { workload: 'web' } },
      status: {
        ...{ readyEndpoints: 1, totalEndpoints: 1 },
        conditions: [
          { type: ServiceCondition_Type.HAS_ENDPOINTS, holds: true },
          {
            ...{ type, holds: false },
            ...{ reason: 'NoNetworkProxy', message: 'no node has a network proxy' },
          },
        ],
      },
    });
    const { stdout } = await runCli(['explain', 'service/web'], {
      network: { ...network, getService: () => service },
    });
    expect(stdout).toContain(
      'service default/web: 1 of 1 endpoint is ready, but no node has a network proxy; start agents with --network on or auto.\n',
    );
  });
});

describe('network trace', () => {
  const from = node('n1', NodeStatus_Phase.READY, 'z1');
  const nodes = new Map([
    ['n1', from],
    ['n2', node('n2')],
    ['n3', node('n3', NodeStatus_Phase.LOST)],
    ['n4', withoutProxy('n4')],
  ]);
  const lastStep = (endpoints: readonly ServiceEndpoint[], hasTls = true): string => {
    const service = WEB;
    const input = { from, service, endpoints, nodes, hasTls };
    const { step, result, detail } = traceSteps(input).at(-1) ?? {
      step: '',
      result: '',
      detail: '',
    };
    return `${step} ${result}: ${detail}`;
  };

  it.each([
    [[anEndpoint()], 'path ok: 10.0.0.1:8080 on the same node'],
    [
      [anEndpoint({ nodeId: 'n2' })],
      'path ok: 10.0.0.1:8080 on node n2, by mutual TLS between machines',
    ],
    [[anEndpoint({ nodeId: 'n3' })], 'path fails: the nodes of the endpoints are not ready: n3'],
    [
      [anEndpoint({ nodeId: 'n3' }), anEndpoint({ nodeId: 'n4' })],
      'path fails: the nodes of the endpoints run without a network proxy; start their agents with --network on or auto: n4',
    ],
    [
      [anEndpoint({ nodeId: 'n4' }), anEndpoint({ nodeId: 'n2', address: '10.0.0.2' })],
      'path ok: 10.0.0.2:8080 on node n2, by mutual TLS between machines',
    ],
    [
      [anEndpoint({ nodeId: '', address: 'fd00::1' })],
      'path ok: [fd00::1]:8080 outside the cluster, from this node',
    ],
    [[], 'endpoints fails: none: the proxy refuses the connection at once'],
    [
      [UNREADY],
      'endpoints fails: 0 of 1 endpoint receive connections; aa-2-http: readiness probe: connection refused',
    ],
    [
      [anEndpoint({ weight: 0 })],
      'endpoints fails: 0 of 1 endpoint receive connections; aa-1-http: has weight 0',
    ],
  ])('of %j ends with %s', (endpoints, expected) => {
    expect(lastStep(endpoints)).toBe(expected);
  });

  const withProblem = (id: string, reason: string): Node => {
    const degraded = node(id);
    degraded.status?.conditions.push(
      create(ConditionSchema, {
        ...{ type: Condition_Type.NETWORK_PROXY_DEGRADED, status: true, reason },
      }),
    );
    return degraded;
  };

  it('shows what the proxies of the caller and of the endpoint report', () => {
    const caller = withProblem('n1', 'port 53 is taken');
    const target = withProblem('n2', 'the network proxy reaches no coordinator');
    const steps = traceSteps({
      ...{ from: caller, service: WEB, hasTls: true },
      endpoints: [anEndpoint({ nodeId: 'n2' })],
      nodes: new Map([['n2', target]]),
    });
    expect(steps.filter(({ result }) => result === 'warns')).toEqual([
      { step: 'proxy', result: 'warns', detail: 'port 53 is taken' },
      {
        step: 'path',
        result: 'warns',
        detail:
          '10.0.0.1:8080 on node n2, whose proxy reports: the network proxy reaches no coordinator',
      },
    ]);
  });

  const dns = create(ServicePortSchema, { name: 'dns', port: 53, protocol: Port_Protocol.UDP });
  it.each([
    {
      problem:
        'cannot listen at tcp 10.96.0.20:80: listen EADDRINUSE: address already in use 10.96.0.20:80',
      expected: ['proxy warns', 'address fails'],
    },
    {
      problem:
        'port 53 is taken; cannot listen at udp 10.96.0.20:53: bind EADDRINUSE 10.96.0.20:53',
      ports: [...(WEB.spec?.ports ?? []), dns],
      expected: ['proxy warns', 'address warns'],
    },
    {
      problem: 'cannot listen at tcp 10.96.0.20:8080: listen EADDRINUSE',
      expected: ['proxy warns', 'address ok'],
    },
    {
      problem: 'virtual addresses of 10.96.0.0/16 are not served: EPERM',
      expected: ['proxy warns', 'address fails'],
    },
    {
      problem:
        'virtual addresses of this machine are not served: process 7 of node "x" serves them',
      expected: ['proxy warns', 'address fails'],
    },
    {
      problem: 'the network proxy does not answer; see /data/network/error on the node',
      expected: ['proxy fails', 'address ok'],
    },
  ])(
    'fails where no connection gets further: $problem',
    async ({ problem, ports = WEB.spec?.ports ?? [], expected }) => {
      const caller = withProblem('n1', problem);
      const service = create(ServiceSchema, { ...WEB, spec: { ...WEB.spec, ports } } as object);
      const { exitCode, stdout } = await runCli(['network', 'trace', 'n1', 'web', '-o', 'json'], {
        coordinator: { getNode: () => caller },
        network: { ...network, getService: () => service },
      });
      const { traces } = JSON.parse(stdout) as { traces: { steps: Record<string, string>[] }[] };
      const steps = traces[0]?.steps.map(({ step, result }) => `${step} ${result}`) ?? [];
      expect(steps.filter((text) => /^(proxy|address) /.test(text))).toEqual(expected);
      expect(exitCode).toBe(expected.some((text) => text.endsWith('fails')) ? 1 : 0);
    },
  );

  it('fails at the proxy on a node without a network proxy, and shows no later step', async () => {
    const coordinator: CliOptions['coordinator'] = { getNode: () => withoutProxy('n4') };
    const { exitCode, stdout, stderr } = await runCli(
      ['network', 'trace', 'n4', 'web', '-o', 'json'],
      { network, coordinator },
    );
    expect({ exitCode, stderr }).toEqual({
      exitCode: 1,
      stderr: expect.stringContaining('a connection to default/web would fail'),
    });
    expect(JSON.parse(stdout)).toEqual({
      traces: [
        {
          from: 'n4',
          steps: [
            { step: 'caller', result: 'ok', detail: 'node n4' },
            {
              step: 'proxy',
              result: 'fails',
              detail:
                'node n4 runs without a network proxy: names and addresses of services do not work there; start its agent with --network on or auto',
            },
          ],
        },
      ],
    });
  });

  it('without TLS warns that other machines are not reached', () => {
    expect(lastStep([anEndpoint({ nodeId: 'n2' })], false)).toBe(
      'path warns: 10.0.0.1:8080 on node n2: reached on the same machine only, as the cluster has no TLS',
    );
  });

  it('prints each step, and fails when a step would fail', async () => {
    const coordinator: CliOptions['coordinator'] = { getNode: () => from };
    const good = await runCli(['network', 'trace', 'n1', 'web'], { network, coordinator });
    expect(good).toMatchObject({ exitCode: 0, stderr: '' });
    expect(good.stdout).toContain('10.0.0.1:8080 on the same node');
    const bad = await runCli(['network', 'trace', 'n1', 'web'], {
      coordinator,
      network: {
        ...network,
        listEndpoints: () => ({ endpoints: [], nextPageToken: '', revision: 1n }),
      },
    });
    expect(bad).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('a connection to default/web would fail'),
    });
  });

  it('refuses a caller that is neither a node nor a workload', async () => {
    const notFound = (): never => {
      throw new ConnectError('not found', Code.NotFound);
    };
    const coordinator = { getNode: notFound, getWorkload: notFound };
    expect(
      await runCli(['network', 'trace', 'nope', 'web'], { network, coordinator }),
    ).toMatchObject({
      exitCode: 3,
      stderr: expect.stringContaining('"nope" is neither a node nor a workload'),
    });
  });
});
