import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  CertificateAuthorityRotation_Phase as RotationPhase,
  CertificateAuthoritySchema,
  ContainerUseSchema,
  EventSchema,
  Event_Severity,
  NodeStatus_Phase,
  JoinTokenSchema,
  NodeBanSchema,
  PlacementReason_Kind,
  ReplicaStatusSchema,
  ReplicaStatus_Phase,
  Role,
  UserCredentialSchema,
  UserCredential_Kind as CredentialKind,
  UserSchema,
  WorkloadStatus_Phase,
} from '@cloudless/api';
import { NOW_MS, aNode, aWorkload, runCli } from '../testing/run-cli.js';
import type { CliOptions } from '../testing/run-cli.js';
import { getTextWidth } from './text-width.js';

const REASON =
  'no node fits: needs 500m CPU, 100m free on the largest of 3 nodes; no container runtime on 2 of 3 nodes';

const replicas = [
  create(ReplicaStatusSchema, {
    id: '00000000000000aa-1',
    version: 2,
    phase: ReplicaStatus_Phase.RUNNING,
    ready: true,
    nodeId: 'edge-frankfurt-1',
    zone: 'eu-central-1a',
    createdAt: timestampFromMs(NOW_MS - 3_600_000 * 5),
    endpoints: [{ portName: 'http', ip: '10.0.0.1', port: 8080 }],
  }),
  create(ReplicaStatusSchema, {
    id: '00000000000000aa-12',
    slot: 1,
    version: 2,
    phase: ReplicaStatus_Phase.STARTING,
    nodeId: 'edge-frankfurt-2',
    zone: 'eu-central-1b',
    restarts: 4,
    createdAt: timestampFromMs(NOW_MS - 90_000),
    reason: 'back-off 20 s after exit code 1: Error: connect ECONNREFUSED 10.0.0.9:5432',
  }),
  create(ReplicaStatusSchema, { id: '00000000000000aa-13', slot: 2, version: 2, reason: REASON }),
];
const workloads = [
  aWorkload({ spec: { image: 'registry.example.com/shop/web:2.1', labels: { app: 'shop' } } }),
  aWorkload({
    name: 'checkout-with-a-long-name',
    spec: { image: 'registry.example.com/shop/checkout:1.9', replicas: 3, ports: [] },
    status: {
      phase: WorkloadStatus_Phase.SCHEDULING,
      desiredReplicas: 3,
      readyReplicas: 1,
      updatedReplicas: 2,
      reason: REASON,
      replicas,
    },
  }),
];
const nodes = [
  aNode({ id: 'edge-frankfurt-1', zone: 'eu-central-1a', labels: { disk: 'ssd', rack: '7' } }),
  aNode({
    id: 'edge-frankfurt-2',
    zone: 'eu-central-1b',
    cordoned: true,
    status: {
      phase: NodeStatus_Phase.LOST,
      usage: { cpuMillis: 1200, memoryBytes: 3n << 30n },
      reason: 'no heartbeat for 12 s',
    },
  }),
];
const events = [
  create(EventSchema, {
    id: '0000000002-0000000017',
    time: timestampFromMs(NOW_MS - 65_000),
    severity: Event_Severity.WARNING,
    reason: 'PlacementFailed',
    namespace: 'default',
    workload: 'checkout-with-a-long-name',
    message: REASON,
    count: 7,
    firstTime: timestampFromMs(NOW_MS - 600_000),
  }),
  create(EventSchema, {
    id: '0000000002-0000000018',
    time: timestampFromMs(NOW_MS - 5_000),
    reason: 'NodeReady',
    nodeId: 'edge-frankfurt-1',
    message: 'the node answers again',
    count: 1,
  }),
];
const use = create(ContainerUseSchema, {
  namespace: 'default',
  workload: 'checkout-with-a-long-name',
  replicaId: '00000000000000aa-12',
  containerId: 'c'.repeat(64),
  nodeId: 'edge-frankfurt-2',
  cpuMillis: 180n,
  memoryWorkingSetBytes: 3n << 20n,
  pidsCurrent: 4n,
  cpuRequestMillis: 100n,
  memoryRequestBytes: 1n << 26n,
  sampledAt: timestampFromMs(NOW_MS - 4_000),
});
const DAY_MS = 86_400_000;
const users = [
  create(UserSchema, {
    name: 'ada.lovelace@example.com',
    createdAt: timestampFromMs(NOW_MS - 40 * DAY_MS),
    grants: [
      { role: Role.VIEWER, namespace: '' },
      { role: Role.OPERATOR, namespace: 'shop' },
      { role: Role.OPERATOR, namespace: 'checkout-with-a-long-name' },
    ],
  }),
  create(UserSchema, { name: 'grace', createdAt: timestampFromMs(NOW_MS - 5_000) }),
];
const credentials = [
  create(UserCredentialSchema, {
    id: 'k3v9x0aq71bd',
    user: 'ada',
    kind: CredentialKind.TOKEN,
    description: 'nightly backup job of the shop on the build server',
    createdBy: 'user/admin',
    createdAt: timestampFromMs(NOW_MS - 89 * DAY_MS),
    expiresAt: timestampFromMs(NOW_MS + DAY_MS),
  }),
  create(UserCredentialSchema, {
    id: '0m4c8e2fz6ty',
    user: 'ada',
    kind: CredentialKind.CERTIFICATE,
    description: 'laptop',
    createdBy: 'user/ada',
    tokenId: 'k3v9x0aq71bd',
    createdAt: timestampFromMs(NOW_MS - 10 * DAY_MS),
    expiresAt: timestampFromMs(NOW_MS - DAY_MS),
  }),
  create(UserCredentialSchema, {
    id: 'p9q8r7s6t5u4',
    user: 'ada',
    kind: CredentialKind.TOKEN,
    createdBy: 'user/ada',
    createdAt: timestampFromMs(NOW_MS - 20 * DAY_MS),
    expiresAt: timestampFromMs(NOW_MS + 70 * DAY_MS),
    revokedAt: timestampFromMs(NOW_MS - 3_600_000),
  }),
];
const joinTokens = [
  create(JoinTokenSchema, {
    id: 'k3v9x0aq71bd',
    description: 'machines of the rack in Frankfurt that come in the spring',
    maxUses: 10,
    nodeIdPattern: 'edge-frankfurt-*',
    labels: { site: 'frankfurt', disk: 'ssd' },
    cidrs: ['10.0.0.0/8', '2001:db8::/32'],
    createdBy: 'user/admin',
    createdAt: timestampFromMs(NOW_MS - 3_600_000),
    expiresAt: timestampFromMs(NOW_MS + 23 * 3_600_000),
    uses: [{ nodeId: 'edge-frankfurt-1' }, { nodeId: 'edge-frankfurt-2' }],
  }),
  create(JoinTokenSchema, {
    id: '0m4c8e2fz6ty',
    maxUses: 1,
    createdBy: 'user/ada',
    createdAt: timestampFromMs(NOW_MS - 2 * DAY_MS),
    expiresAt: timestampFromMs(NOW_MS - DAY_MS),
    uses: [{ nodeId: 'web1' }],
  }),
];
const authority = create(CertificateAuthoritySchema, {
  trustDomain: 'cloudless',
  trustBundleGeneration: 2n,
  roots: [
    {
      generation: 1,
      sha256: '3f'.repeat(32),
      notAfter: timestampFromMs(NOW_MS + 3000 * DAY_MS),
      issues: true,
    },
    { generation: 2, sha256: 'a0'.repeat(32), notAfter: timestampFromMs(NOW_MS + 3650 * DAY_MS) },
  ],
  rotation: {
    phase: RotationPhase.DISTRIBUTING,
    startedAt: timestampFromMs(NOW_MS - 90_000),
    waitingNodes: ['a1', 'a2', 'a3', 'a4', 'a5', 'a6'],
    waitingNodeCount: 140,
    waitingUsers: ['ada'],
    completedNodeCount: 4860,
  },
});
const aHeadroom = (zone: string, nodes: number) => ({
  ...{ zone, nodes, cpuMillis: 38_904_000n, freeCpuMillis: 1_234_500n },
  ...{ memoryBytes: 1n << 44n, freeMemoryBytes: 3n << 42n, freeReplicas: 123_456n },
  ...{ largestFreeCpuMillis: 7_900n, largestFreeMemoryBytes: 31n << 30n },
});
const cluster: CliOptions = {
  coordinator: {
    listWorkloads: () => ({ workloads }),
    getWorkload: () => workloads[1] ?? aWorkload(),
    listNodes: () => ({ nodes }),
    getNode: () => nodes[1] ?? aNode(),
    listEvents: ({ newestFirst }) => ({ events: newestFirst ? [...events].reverse() : events }),
    simulateCluster: () => ({
      revision: 4711n,
      workloads: [
        {
          ...{ namespace: 'default', name: 'checkout-with-a-long-name', desired: 12 },
          ...{ readyBefore: 12, readyAfter: 11, floor: 8, minAvailable: 10 },
          ...{ leaving: 4, placed: 3, waiting: 1, waitingReason: REASON },
          suggestion: 'would fit on edge-frankfurt-2 with at most 100m CPU',
        },
        {
          ...{ namespace: 'shop', name: 'web', desired: 3, readyBefore: 3, readyAfter: 3 },
          ...{ floor: 3, minAvailable: 2, leaving: 0, placed: 0 },
        },
      ],
      totalWorkloads: 2,
      moves: [
        {
          ...{ namespace: 'default', name: 'checkout-with-a-long-name' },
          ...{ replicaId: '00000000000000aa-1', fromNodeId: 'edge-frankfurt-1' },
          ...{ fromZone: 'eu-central-1a', toNodeId: 'edge-frankfurt-2', toZone: 'eu-central-1b' },
        },
        { namespace: 'shop', name: 'web', toNodeId: 'new-1' },
      ],
      totalMoves: 7,
      waitingAfter: 1,
      before: { total: aHeadroom('', 4860) },
      after: {
        total: aHeadroom('', 4863),
        zones: [aHeadroom('', 3), aHeadroom('eu/eu-central-1b', 4860)],
      },
    }),
    explainWorkload: () => ({
      summary: '2 of 3 replicas have a node; 1 waits.',
      nodes: [
        {
          nodeId: 'edge-frankfurt-1',
          zone: 'eu-central-1a',
          fits: true,
          score: 0.6612,
          terms: { locality: 0.7, reliability: 1, cost: 0.6, utilisation: 0.48, taints: -0.1 },
        },
        { nodeId: 'edge-frankfurt-2', zone: 'eu-central-1b', reason: REASON },
        ...['3', '4-with-a-long-name', '5', '6'].map((suffix) => ({
          nodeId: `edge-frankfurt-${suffix}`,
          zone: 'eu-central-1c',
          fits: true,
          score: 0.5,
          terms: { locality: 0.7, reliability: 0.75 },
        })),
      ],
      suggestion:
        'would fit on edge-frankfurt-2 with a container runtime (containerd) and with at most 400m CPU; or use command instead of image',
      funnel: [
        { kind: PlacementReason_Kind.CAPABILITY, removed: 4860, left: 6 },
        { kind: PlacementReason_Kind.WORKLOAD_ANTI_AFFINITY, removed: 1, left: 5 },
      ],
      replicas,
    }),
  },
  agents: {
    listContainerStats: () => ({ containers: [use] }),
  },
  users: { listUsers: () => ({ users }), listUserTokens: () => ({ credentials }) },
  identities: {
    listJoinTokens: () => ({ tokens: joinTokens }),
    listNodeBans: () => ({
      bans: [
        create(NodeBanSchema, {
          nodeId: 'edge-frankfurt-2',
          bannedAt: timestampFromMs(NOW_MS - 600_000),
          bannedBy: 'user/ada',
          reason: 'the machine was stolen from the rack in Frankfurt, see the report of the police',
        }),
      ],
    }),
    getCertificateAuthority: () => authority,
  },
};
const COMMANDS = [
  'get workloads',
  'get workloads -o wide',
  'get nodes',
  'get nodes -o wide',
  'get replicas',
  'get replicas -o wide',
  'get events',
  'describe checkout-with-a-long-name',
  'node describe edge-frankfurt-2',
  'explain checkout-with-a-long-name',
  'explain checkout-with-a-long-name -o wide',
  'simulate --lose-zone eu-central-1a --add-nodes 3=like:edge-frankfurt-1',
  'top node',
  'top workload',
  'top replica',
  'user list',
  'user token list ada',
  'user token list ada -o wide',
  'token list',
  'token list -o wide',
  'node bans',
  'admin ca',
];
/** Commands whose output is wider than a narrow terminal by design. */
const UNLIMITED = / -o wide/;

/** A field of a description. The terminal breaks a long value, so that the value can be copied. */
const FIELD = /^ *[A-Z][a-z ]+: {2}/;

/** The expected outputs are in `__snapshots__`, one block for each command and width. */
describe.each(COMMANDS)('cloudlessctl %s', (command) => {
  it.each([80, 120, 200])('fits into a terminal of %i columns', async (columns) => {
    const { stdout } = await runCli(command.split(' '), {
      ...cluster,
      isTTY: true,
      columns,
      env: { NO_COLOR: '1' },
    });
    expect(stdout).toMatchSnapshot();
    const limited = stdout.split('\n').filter((line) => !FIELD.test(line));
    if (!UNLIMITED.test(command))
      expect(Math.max(...limited.map(getTextWidth))).toBeLessThanOrEqual(columns);
  });

  it('cuts nothing and has no colours without a terminal', async () => {
    const { stdout } = await runCli(command.split(' '), { ...cluster, columns: 80 });
    expect(stdout).toMatchSnapshot();
    expect(stdout).not.toContain('…');
  });

  it('has the same text with colours as without', async () => {
    const options = { ...cluster, isTTY: true, columns: 100 };
    const coloured = await runCli(command.split(' '), { ...options, env: { FORCE_COLOR: '1' } });
    const plain = await runCli(command.split(' '), { ...options, env: { NO_COLOR: '1' } });
    expect(coloured.stdout.replaceAll(/\x1b\[\d+m/g, '')).toBe(plain.stdout);
  });
});
