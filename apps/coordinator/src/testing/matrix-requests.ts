import type { DescMethod, DescService } from '@bufbuild/protobuf';
import {
  AdminService,
  AgentService,
  ConfigsService,
  CoordinatorService,
  IdentityService,
  NetworkService,
  NodeNetworkService,
  PolicyService,
  Role,
  SecretsService,
  UserService,
} from '@cloudless/api';
import { Health, ServerReflectionV1, ServerReflectionV1Alpha } from '@cloudless/api/grpc';

/** The objects that the request of a cell names. */
export interface MatrixTarget {
  /** A namespace with one workload `web` of one replica. */
  readonly namespace: string;
  readonly replicaId: string;
  readonly containerId: string;
  /** A plan about the workload. */
  readonly planId: string;
  readonly nodeId: string;
  readonly instanceId: string;
  readonly clusterId: string;
  /** The user whose credentials the call is about. */
  readonly user: string;
  /** A valid certificate signing request, DER. */
  readonly csr: Uint8Array;
  /** A secret of the namespace, and a valid access token of it for the audience `ci`. */
  readonly secret: { readonly name: string; readonly accessToken: string };
  /** A join token that is valid for the node `enrolled`, which has joined with it. */
  readonly enrolment: {
    readonly nodeId: string;
    readonly instanceId: string;
    readonly token: string;
    readonly csr: Uint8Array;
  };
}

/** One RPC of the matrix: a request that is valid, and harmless when permitted. */
export interface MatrixRow {
  /** @returns The messages of the request; one for an RPC without a client stream. */
  readonly request: (target: MatrixTarget) => object;
  /** The request with a valid access token, of an RPC that needs none. */
  readonly requestWithToken?: (target: MatrixTarget) => object;
  /**
   * True: the request names an existing object by an id, so NOT_FOUND is how a refusal looks. False:
   * the request names no object, or a missing one, so NOT_FOUND means that the call was permitted.
   */
  readonly namesId?: true;
  /** The list has no filter for namespaces: every role may call, and the answer is checked. */
  readonly isUnscopedList?: true;
  /** The call is always about the caller itself. */
  readonly isSelf?: true;
  /** Not called when permitted, because the call would change what the other cells rely on. */
  readonly onlyWhenRefused?: true;
}

const workload = ({ namespace }: MatrixTarget) => ({ namespace, name: 'none' });
const inNamespace = ({ namespace }: MatrixTarget) => ({ namespace });
const missingNode = () => ({ nodeId: 'none' });
const nothing = () => ({});
const start = (target: MatrixTarget, more: object = {}) => ({
  request: { case: 'start', value: { ...workload(target), ...more } },
});
const hello = ({ nodeId, instanceId, clusterId }: MatrixTarget) => ({
  nodeId,
  instanceId,
  clusterId,
  protocolMin: 1,
  protocolMax: 2,
});
const command = ['true'];

type Rows<Service extends DescService> = {
  readonly [Rpc in keyof Service['method']]: MatrixRow;
};

const coordinator: Rows<typeof CoordinatorService> = {
  getServerInfo: { request: nothing },
  enrollNode: { request: ({ enrolment }) => enrolment },
  heartbeat: { request: (target) => ({ hello: hello(target) }) },
  renewLease: {
    request: ({ nodeId }) => ({ nodeId, sessionId: 'none', loopAge: { nanos: 1 } }),
  },
  session: { request: (target) => ({ message: { case: 'hello', value: hello(target) } }) },
  getReplicaFiles: { request: ({ nodeId, replicaId }) => ({ nodeId, replicaId }) },
  tunnel: { request: () => ({ frame: { case: 'tunnelId', value: 'none' } }) },
  getNode: { request: missingNode },
  listNodes: { request: nothing },
  watchNodes: { request: nothing },
  updateNode: { request: missingNode },
  cordonNode: { request: missingNode },
  uncordonNode: { request: missingNode },
  drainNode: { request: missingNode },
  confirmNodeLost: { request: missingNode },
  removeNode: { request: missingNode },
  createWorkload: { request: (target) => ({ ...workload(target), spec: {} }) },
  updateWorkload: { request: (target) => ({ ...workload(target), spec: {} }) },
  scaleWorkload: { request: (target) => ({ ...workload(target), replicas: 1 }) },
  deleteWorkload: { request: workload },
  getWorkload: { request: workload },
  listWorkloads: { request: inNamespace },
  watchWorkloads: { request: inNamespace },
  watchReplicas: { request: inNamespace },
  listReplicas: { request: inNamespace },
  planWorkload: { request: (target) => ({ ...workload(target), spec: {} }) },
  explainWorkload: { request: workload },
  simulateCluster: { request: nothing },
  proposeMoves: { request: nothing },
  pauseRollout: { request: workload },
  resumeRollout: { request: workload },
  promoteRollout: { request: (target) => ({ ...workload(target), version: 1 }) },
  undoRollout: { request: workload },
  restartRollout: { request: workload },
  getWorkloadVersion: { request: (target) => ({ ...workload(target), version: 1 }) },
  createPlan: {
    request: (target) => ({
      changes: [{ change: { case: 'scale', value: { ...workload(target), replicas: 1 } } }],
      validateOnly: true,
    }),
  },
  listPlans: { request: nothing, isUnscopedList: true },
  getPlan: { request: ({ planId }) => ({ id: planId }), namesId: true },
  executePlan: { request: ({ planId }) => ({ id: planId }), namesId: true },
  listEndpoints: { request: workload },
  watchEndpoints: { request: workload },
  listEvents: { request: inNamespace },
  watchEvents: { request: inNamespace },
  streamLogs: { request: workload },
  execCommand: { request: (target) => ({ ...workload(target), command }) },
  exec: { request: (target) => start(target, { command }) },
  portForward: { request: (target) => start(target) },
};

const agent: Rows<typeof AgentService> = {
  streamLogs: { request: workload },
  execCommand: { request: (target) => ({ ...workload(target), command }) },
  exec: { request: (target) => start(target, { command }) },
  portForward: { request: (target) => start(target) },
  getContainerStatus: { request: ({ containerId }) => ({ containerId }), namesId: true },
  listContainers: { request: nothing, isUnscopedList: true },
  getContainerStats: { request: ({ replicaId }) => ({ replicaId }), namesId: true },
  listContainerStats: { request: inNamespace },
};

const admin: Rows<typeof AdminService> = {
  backup: { request: nothing },
  snapshot: { request: nothing },
  acceptRestoredState: { request: nothing },
  stepDown: { request: nothing },
};

const identity: Rows<typeof IdentityService> = {
  createJoinToken: { request: nothing },
  listJoinTokens: { request: nothing },
  revokeJoinToken: { request: () => ({ id: 'none' }) },
  renewNodeCertificate: {
    request: ({ nodeId, instanceId, csr }) => ({ nodeId, instanceId, csr }),
  },
  issueWorkloadCertificate: {
    request: ({ nodeId, replicaId, csr }) => ({ nodeId, replicaId, csr }),
  },
  authorizeAgentCall: {
    request: ({ nodeId, csr }) => ({ nodeId, certificateChain: [csr], rpc: 'ExecCommand' }),
  },
  banNode: { request: missingNode },
  unbanNode: { request: missingNode },
  listNodeBans: { request: nothing },
  getCertificateAuthority: { request: nothing },
  rotateCertificateAuthority: { request: nothing, onlyWhenRefused: true },
  skipCertificateAuthorityWait: { request: nothing },
  fetchAuthorityKeys: { request: nothing },
  recordRefusedCalls: { request: nothing },
};

const grant = ({ namespace }: MatrixTarget) => ({ user: 'none', role: Role.VIEWER, namespace });
const users: Rows<typeof UserService> = {
  createUser: { request: () => ({ name: 'other' }) },
  listUsers: { request: nothing, isUnscopedList: true },
  deleteUser: { request: () => ({ name: 'none' }) },
  grant: { request: grant },
  revoke: { request: grant },
  createUserToken: { request: ({ user }) => ({ user }) },
  listUserTokens: { request: ({ user }) => ({ user }) },
  revokeUserToken: { request: ({ user }) => ({ user, id: 'none' }) },
  issueUserCertificate: { request: ({ csr }) => ({ csr }), isSelf: true },
  whoAmI: { request: nothing },
};

const service = ({ namespace }: MatrixTarget) => ({ namespace, service: 'none' });
const network: Rows<typeof NetworkService> = {
  createService: {
    request: (target) => ({ ...workload(target), spec: { externalName: 'www.example.com' } }),
  },
  getService: { request: workload },
  listServices: { request: inNamespace },
  updateService: { request: (target) => ({ ...workload(target), spec: {} }) },
  deleteService: { request: workload },
  watchServices: { request: inNamespace },
  registerEndpoint: {
    request: (target) => ({ ...service(target), address: '192.0.2.1', port: 80 }),
  },
  deregisterEndpoint: { request: (target) => ({ ...service(target), endpointId: 'none' }) },
  listEndpoints: { request: service },
  updateEndpointHealth: {
    request: (target) => ({
      ...service(target),
      endpointId: 'none',
      health: {},
      nodeId: target.nodeId,
    }),
  },
  getLoadBalancerConfig: { request: service },
  updateLoadBalancerConfig: { request: (target) => ({ ...service(target), config: {} }) },
  resolveService: { request: ({ namespace }) => ({ namespace, serviceName: 'none' }) },
  watchServiceEndpoints: { request: service },
  createRoute: {
    request: (target) => ({
      ...workload(target),
      spec: { hosts: ['www.example.com'], rules: [{ service: 'none', port: '80' }] },
    }),
  },
  getRoute: { request: workload },
  listRoutes: { request: inNamespace },
  updateRoute: { request: (target) => ({ ...workload(target), spec: {} }) },
  deleteRoute: { request: workload },
};
const policies: Rows<typeof PolicyService> = {
  createPolicy: { request: () => ({ name: 'none', spec: {} }) },
  // The policy is for the namespace of the target: all others get NOT_FOUND.
  getPolicy: { request: () => ({ name: 'shop' }), isUnscopedList: true },
  listPolicies: { request: inNamespace },
  updatePolicy: { request: () => ({ name: 'none', spec: {} }) },
  deletePolicy: { request: () => ({ name: 'none' }) },
  watchPolicies: { request: inNamespace },
  testPolicy: { request: inNamespace },
};
const configs: Rows<typeof ConfigsService> = {
  createConfig: { request: (target) => ({ ...workload(target), data: {} }) },
  getConfig: { request: workload },
  listConfigs: { request: inNamespace },
  updateConfig: { request: workload },
  deleteConfig: { request: workload },
  watchConfigs: { request: inNamespace },
};
const secrets: Rows<typeof SecretsService> = {
  createSecret: {
    request: (target) => ({
      ...inNamespace(target),
      ...{ name: 'none', data: { key: Uint8Array.of(1) }, audiences: ['workload/*'] },
    }),
  },
  getSecret: {
    request: workload,
    requestWithToken: (target) => ({ ...inNamespace(target), ...target.secret, audience: 'ci' }),
  },
  listSecrets: { request: inNamespace },
  updateSecret: { request: workload },
  deleteSecret: { request: workload },
  generateAccessToken: { request: (target) => ({ ...workload(target), audience: 'ci' }) },
  revokeAccessToken: { request: (target) => ({ ...workload(target), all: true }) },
  validateAccessToken: {
    request: (target) => ({ ...inNamespace(target), ...target.secret, audience: 'ci' }),
  },
  rotateMasterKey: { request: nothing },
  getMasterKeyInfo: { request: nothing },
  getSecretAuditLog: { request: workload },
};
const nodeNetwork: Rows<typeof NodeNetworkService> = {
  syncNetwork: { request: ({ nodeId }) => ({ nodeId }) },
  relayNetwork: {
    request: ({ nodeId }) => ({
      message: { case: 'target', value: { fromNodeId: nodeId, nodeId: 'none' } },
    }),
  },
  getRouteCertificate: {
    request: ({ nodeId, namespace }) => ({ nodeId, namespace, name: 'none' }),
  },
};

const listServices = {
  request: () => ({ messageRequest: { case: 'listServices', value: '' } }),
};
const health: Rows<typeof Health> = { check: { request: nothing }, watch: { request: nothing } };
const reflectionV1: Rows<typeof ServerReflectionV1> = { serverReflectionInfo: listServices };
const reflectionV1Alpha: Rows<typeof ServerReflectionV1Alpha> = {
  serverReflectionInfo: listServices,
};

const rows: Readonly<Record<string, Readonly<Record<string, MatrixRow>>>> = {
  [CoordinatorService.typeName]: coordinator,
  [AgentService.typeName]: agent,
  [AdminService.typeName]: admin,
  [IdentityService.typeName]: identity,
  [NetworkService.typeName]: network,
  [NodeNetworkService.typeName]: nodeNetwork,
  [ConfigsService.typeName]: configs,
  [PolicyService.typeName]: policies,
  [SecretsService.typeName]: secrets,
  [UserService.typeName]: users,
  [Health.typeName]: health,
  [ServerReflectionV1.typeName]: reflectionV1,
  [ServerReflectionV1Alpha.typeName]: reflectionV1Alpha,
};

/** Returns the row of an RPC. */
export function getMatrixRow(method: DescMethod): MatrixRow {
  const row = rows[method.parent.typeName]?.[method.localName];
  if (row === undefined) throw new Error(`no row for ${method.toString()}`);
  return row;
}
