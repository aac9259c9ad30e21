import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient, type Client } from '@connectrpc/connect';
import {
  CoordinatorService,
  IdentityService,
  ReplicaStatus_Phase as Phase,
  PolicyRule_Type,
  PolicyService,
  Role,
  SecretsService,
  UserService,
} from '@cloudless/api';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { silentLog, sleep, type Clock } from '@cloudless/base';
import type { RoleName } from '@cloudless/identity';
import { TestAuthority } from '@cloudless/identity/testing';
import { createKeyAndCsr } from '@cloudless/identity/x509';
import { parseCoordinatorConfig } from '../config.js';
import { startCoordinator, type RunningCoordinator } from '../coordinator.js';
import { connectHttp2, type ClientCertificate, type MatrixConnection } from './matrix-clients.js';
import type { MatrixTarget } from './matrix-requests.js';

/** A user with a bearer token and a client certificate. */
export interface MatrixUser {
  readonly name: string;
  readonly token: string;
  readonly certificate: ClientCertificate;
}

/** A machine that has joined as a node. */
export interface MatrixNode {
  readonly nodeId: string;
  readonly instanceId: string;
  readonly token: string;
  readonly csr: Uint8Array;
  readonly certificate: ClientCertificate;
}

const ROLES: Readonly<Record<RoleName, Role>> = {
  viewer: Role.VIEWER,
  operator: Role.OPERATOR,
  admin: Role.ADMIN,
};
const CONTAINER_ID = 'c0ffee000000';

/** A coordinator with TLS, two nodes, a workload in the namespace `shop`, and users. */
export class MatrixCluster {
  /** Time by which the wall clock of the coordinator is ahead of that of this machine. */
  clockOffsetMs = 0;
  private target: MatrixTarget | undefined;

  private constructor(
    private readonly directory: string,
    readonly coordinator: RunningCoordinator,
    private readonly adminConnection: MatrixConnection,
  ) {}

  static async start(): Promise<MatrixCluster> {
    const directory = await mkdtemp(join(tmpdir(), 'access-matrix-'));
    const shift = { clockOffsetMs: 0 };
    const clock: Clock = {
      now: () => systemClock.now(),
      wallTime: () => systemClock.wallTime() + shift.clockOffsetMs,
      setTimer: (delayMs, action) => systemClock.setTimer(delayMs, action),
    };
    const values = { port: 0, opsPort: 0, state: 'memory', leaseMs: '120s', dataDir: directory };
    const coordinator = await startCoordinator(
      parseCoordinatorConfig([{ source: 'test', values }], directory),
      {
        clock,
        random: systemRandom,
        log: silentLog,
        hostname: 'test',
        pid: process.pid,
        version: '0.0.0-test',
      },
    );
    const file = coordinator.identityFiles?.adminFile ?? '';
    const token = (await readFile(file, 'utf8')).trim();
    const connection = connectHttp2(coordinator.url, { token });
    const cluster = new MatrixCluster(directory, coordinator, connection);
    Object.defineProperty(cluster, 'clockOffsetMs', {
      set: (value: number) => (shift.clockOffsetMs = value),
    });
    return cluster;
  }

  get url(): string {
    return this.coordinator.url;
  }

  /** A client that is admin of the whole cluster. */
  get admin(): {
    readonly coordinator: Client<typeof CoordinatorService>;
    readonly identity: Client<typeof IdentityService>;
    readonly users: Client<typeof UserService>;
  } {
    const { transport } = this.adminConnection;
    return {
      coordinator: createClient(CoordinatorService, transport),
      identity: createClient(IdentityService, transport),
      users: createClient(UserService, transport),
    };
  }

  /** The authority of the cluster, which signs whatever a test wants. */
  async loadAuthority(): Promise<TestAuthority> {
    const directory = join(this.coordinator.identityFiles?.identityDir ?? '', 'ca', '1');
    const read = (name: string): Promise<string> => readFile(join(directory, name), 'utf8');
    const [rootPem, rootKeyPem, issuingPem, issuingKeyPem] = await Promise.all(
      ['root.crt', 'root.key', 'issuing.crt', 'issuing.key'].map(read),
    );
    return TestAuthority.load(
      {
        rootPem: rootPem ?? '',
        rootKeyPem: rootKeyPem ?? '',
        issuingPem: issuingPem ?? '',
        issuingKeyPem: issuingKeyPem ?? '',
      },
      { nowMs: systemClock.wallTime() },
    );
  }

  /** Joins a machine with a join token. */
  async joinNode(nodeId: string): Promise<MatrixNode> {
    const { text: token } = await this.admin.identity.createJoinToken({});
    const { keyPem, csr } = await createKeyAndCsr();
    const instanceId = `instance-of-${nodeId}-0123456789`;
    const anonymous = connectHttp2(this.url, {});
    const client = createClient(CoordinatorService, anonymous.transport);
    const { certificate } = await client.enrollNode({ nodeId, instanceId, token, csr });
    anonymous.close();
    const chainPem = certificate?.certificateChain ?? '';
    return { nodeId, instanceId, token, csr, certificate: { keyPem, chainPem } };
  }

  /** Creates a user with a token and a certificate. */
  async createUser(name: string, role?: RoleName, namespace = ''): Promise<MatrixUser> {
    const { users } = this.admin;
    await users.createUser({ name });
    if (role !== undefined) await users.grant({ user: name, role: ROLES[role], namespace });
    const { text: token } = await users.createUserToken({ user: name });
    const { keyPem, csr } = await createKeyAndCsr();
    const connection = connectHttp2(this.url, { token });
    const { certificateChain } = await createClient(
      UserService,
      connection.transport,
    ).issueUserCertificate({ csr });
    connection.close();
    return { name, token, certificate: { keyPem, chainPem: certificateChain } };
  }

  /** Creates the objects that the requests of the matrix name. */
  async createTarget(): Promise<MatrixTarget> {
    const { coordinator, users } = this.admin;
    const { clusterId } = await coordinator.getServerInfo({});
    const enrolment = await this.joinNode('enrolled');
    await users.createUser({ name: 'other' });
    await coordinator.createWorkload({
      namespace: 'shop',
      name: 'web',
      spec: { command: ['serve'], replicas: 1 },
    });
    await createClient(PolicyService, this.adminConnection.transport).createPolicy({
      name: 'shop',
      spec: {
        namespace: 'shop',
        rules: [{ name: 'non-root', type: PolicyRule_Type.RUN_AS_NON_ROOT }],
        enabled: false,
      },
    });
    const { id: planId } = await coordinator.createPlan({
      changes: [
        { change: { case: 'scale', value: { namespace: 'shop', name: 'web', replicas: 1 } } },
      ],
    });
    const secrets = createClient(SecretsService, this.adminConnection.transport);
    const secret = { namespace: 'shop', name: 'db' };
    const data = { key: Uint8Array.of(1) };
    await secrets.createSecret({ ...secret, data, audiences: ['ci'] });
    const { text: accessToken } = await secrets.generateAccessToken({
      ...{ ...secret, audience: 'ci', maxUses: -1 },
    });
    const { csr } = await createKeyAndCsr();
    const { token, ...rest } = enrolment;
    this.target = {
      namespace: 'shop',
      replicaId: '',
      containerId: CONTAINER_ID,
      planId,
      nodeId: '',
      instanceId: '',
      clusterId,
      user: '',
      csr,
      secret: { name: secret.name, accessToken },
      enrolment: {
        nodeId: rest.nodeId,
        instanceId: rest.instanceId,
        csr: rest.csr,
        token,
      },
    };
    return this.target;
  }

  /** Makes a node alive and lets it run the replica of the workload. Returns the replica's id. */
  async runReplica({ nodeId, instanceId, certificate }: MatrixNode): Promise<string> {
    const connection = connectHttp2(this.url, { certificate });
    const client = createClient(CoordinatorService, connection.transport);
    const hello = {
      nodeId,
      instanceId,
      clusterId: this.target?.clusterId ?? '',
      protocolMin: 1,
      protocolMax: 2,
      capacity: { cpuMillis: 4_000, memoryBytes: 2n ** 33n },
      maxReplicas: 10,
      capabilities: ['runtime.process'],
    };
    try {
      await client.heartbeat({ hello, inventory: { last: true } });
      for (let attempt = 0; attempt < 100; attempt += 1) {
        const { orders } = await client.heartbeat({ hello, inventory: { last: true } });
        const [order] = orders;
        if (order !== undefined) {
          const report = {
            replicaId: order.replicaId,
            orderRevision: order.orderRevision,
            phase: Phase.RUNNING,
            containerId: CONTAINER_ID,
          };
          await client.heartbeat({ hello, inventory: { last: true, replicas: [report] } });
          return order.replicaId;
        }
        await sleep(systemClock, 20);
      }
      throw new Error('the replica was not placed');
    } finally {
      connection.close();
    }
  }

  async close(): Promise<void> {
    this.adminConnection.close();
    await this.coordinator.close();
    await rm(this.directory, { recursive: true, force: true });
  }
}
