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
  SecretsService,
  UserService,
} from '@cloudless/api';
import { Health, ServerReflectionV1, ServerReflectionV1Alpha } from '@cloudless/api/grpc';
import type { RoleName } from '../principal.js';
import type { AccessRule, UserRule } from './access-rule.js';

/** One rule for each RPC of a service: a new RPC without a rule does not compile. */
type Rules<Service extends { readonly method: object }> = {
  readonly [Rpc in keyof Service['method']]: AccessRule;
};

const user = (role: RoleName, scope: UserRule['scope']): AccessRule => ({ user: { role, scope } });

/** Every client: health checks, and machines that are about to get an identity. */
const everybody: AccessRule = { unauthenticated: true };
/** Every client with an identity: facts about the server and about the client itself. */
const everyIdentity: AccessRule = { authenticated: true };
/** Calls of an agent for its own node. */
const nodeItself: AccessRule = { node: 'self' };

/** Calls between coordinators, which all hold the keys of the certificate authority. */
const coordinatorOnly: AccessRule = { controller: true };

/** Reads one object of a namespace. */
const read = user('viewer', 'namespace');
/** Lists or watches objects of all namespaces that the caller may read. */
const list = user('viewer', 'filtered');
/** Changes objects of a namespace, or runs commands in containers. */
const change = user('operator', 'namespace');
/** Reads nodes, which belong to no namespace. */
const readNodes = user('viewer', 'cluster');
/** Changes that move workloads between nodes, and that can be undone. */
const changeNodes = user('operator', 'cluster');
/** Removes nodes, grants access, reads backups, or changes the whole cluster. */
const administer = user('admin', 'cluster');
/** Credentials of users. */
const ownCredentials = user('admin', 'self');

const coordinator: Rules<typeof CoordinatorService> = {
  getServerInfo: everyIdentity,
  // The join token in the request is the credential.
  enrollNode: everybody,
  heartbeat: nodeItself,
  renewLease: nodeItself,
  session: nodeItself,
  // The first frame contains an id that the coordinator sent only to the agent of the node.
  tunnel: nodeItself,
  // The handler also checks that the replica is assigned to the node.
  getReplicaFiles: nodeItself,
  getNode: readNodes,
  listNodes: readNodes,
  // A coordinator that follows copies the live status of nodes from the leader.
  watchNodes: { ...readNodes, controller: true },
  updateNode: changeNodes,
  cordonNode: changeNodes,
  uncordonNode: changeNodes,
  drainNode: changeNodes,
  confirmNodeLost: administer,
  removeNode: administer,
  createWorkload: change,
  updateWorkload: change,
  scaleWorkload: change,
  deleteWorkload: change,
  getWorkload: read,
  listWorkloads: list,
  watchWorkloads: list,
  watchReplicas: list,
  listReplicas: list,
  // Needs the role of the change, because the answer shows what the scheduler would do.
  planWorkload: change,
  explainWorkload: read,
  pauseRollout: change,
  resumeRollout: change,
  promoteRollout: change,
  undoRollout: change,
  restartRollout: change,
  getWorkloadVersion: read,
  // The changes of a plan need what the RPCs for these changes need.
  createPlan: change,
  listPlans: list,
  getPlan: read,
  executePlan: change,
  // Shows nodes, and the effects on workloads of all namespaces. The answer has nothing that a viewer
  // of the whole cluster could not work out from the objects that the viewer may read.
  simulateCluster: readNodes,
  proposeMoves: readNodes,
  listEndpoints: read,
  watchEndpoints: read,
  listEvents: list,
  watchEvents: list,
  streamLogs: read,
  execCommand: change,
  exec: change,
  portForward: change,
};

const agent: Rules<typeof AgentService> = {
  streamLogs: read,
  execCommand: change,
  exec: change,
  portForward: change,
  getContainerStatus: read,
  listContainers: list,
  getContainerStats: read,
  listContainerStats: list,
};

const admin: Rules<typeof AdminService> = {
  backup: administer,
  // Contains less than a viewer of the whole cluster may read: no environment, commands or addresses.
  snapshot: readNodes,
  acceptRestoredState: administer,
  stepDown: administer,
};

const identity: Rules<typeof IdentityService> = {
  createJoinToken: administer,
  listJoinTokens: administer,
  revokeJoinToken: administer,
  renewNodeCertificate: { node: 'self', expiredNode: true },
  issueWorkloadCertificate: { node: 'assigned' },
  authorizeAgentCall: { node: 'self' },
  banNode: administer,
  unbanNode: administer,
  listNodeBans: readNodes,
  getCertificateAuthority: administer,
  rotateCertificateAuthority: administer,
  skipCertificateAuthorityWait: administer,
  fetchAuthorityKeys: coordinatorOnly,
  recordRefusedCalls: coordinatorOnly,
};

const users: Rules<typeof UserService> = {
  createUser: administer,
  // An admin of a namespace sees the users that have a role there, and only these roles.
  listUsers: user('admin', 'filtered'),
  deleteUser: administer,
  grant: user('admin', 'namespace'),
  revoke: user('admin', 'namespace'),
  createUserToken: ownCredentials,
  listUserTokens: ownCredentials,
  revokeUserToken: ownCredentials,
  issueUserCertificate: ownCredentials,
  whoAmI: everyIdentity,
};

const configs: Rules<typeof ConfigsService> = {
  createConfig: change,
  getConfig: read,
  listConfigs: list,
  updateConfig: change,
  deleteConfig: change,
  watchConfigs: list,
};

const network: Rules<typeof NetworkService> = {
  createService: change,
  getService: read,
  listServices: list,
  updateService: change,
  deleteService: change,
  watchServices: list,
  registerEndpoint: change,
  deregisterEndpoint: change,
  listEndpoints: read,
  updateEndpointHealth: { ...change, node: 'self' },
  getLoadBalancerConfig: read,
  updateLoadBalancerConfig: change,
  resolveService: read,
  watchServiceEndpoints: read,
  createRoute: change,
  getRoute: read,
  listRoutes: list,
  updateRoute: change,
  deleteRoute: change,
};

const nodeNetwork: Rules<typeof NodeNetworkService> = {
  syncNetwork: nodeItself,
  relayNetwork: nodeItself,
  getRouteCertificate: nodeItself,
};

const policies: Rules<typeof PolicyService> = {
  // A policy of one namespace may exempt its workloads from the policies of all namespaces.
  createPolicy: administer,
  // Policies for all namespaces are shown to everybody with a role, because they judge everybody.
  getPolicy: list,
  listPolicies: list,
  updatePolicy: administer,
  deletePolicy: administer,
  watchPolicies: list,
  testPolicy: list,
};

const secrets: Rules<typeof SecretsService> = {
  createSecret: change,
  // Without an access token, the answer has no values.
  getSecret: { ...read, accessToken: 'optional' },
  listSecrets: list,
  updateSecret: change,
  deleteSecret: change,
  generateAccessToken: change,
  revokeAccessToken: change,
  validateAccessToken: { accessToken: 'always' },
  rotateMasterKey: administer,
  getMasterKeyInfo: readNodes,
  getSecretAuditLog: read,
};

const health: Rules<typeof Health> = { check: everybody, watch: everybody };
const reflectionV1: Rules<typeof ServerReflectionV1> = { serverReflectionInfo: everyIdentity };
const reflectionV1Alpha: Rules<typeof ServerReflectionV1Alpha> = {
  serverReflectionInfo: everyIdentity,
};

/** Access rules of a service by the local names of its RPCs. */
type ServiceRules = Readonly<Record<string, AccessRule>>;

const table: readonly (readonly [DescService, ServiceRules])[] = [
  [CoordinatorService, coordinator],
  [AgentService, agent],
  [ConfigsService, configs],
  [AdminService, admin],
  [IdentityService, identity],
  [NetworkService, network],
  [NodeNetworkService, nodeNetwork],
  [PolicyService, policies],
  [SecretsService, secrets],
  [UserService, users],
  [Health, health],
  [ServerReflectionV1, reflectionV1],
  [ServerReflectionV1Alpha, reflectionV1Alpha],
];
const rulesByService: ReadonlyMap<string, ServiceRules> = new Map(
  table.map(([{ typeName }, rules]) => [typeName, rules]),
);

/** All services that the table has rules for, in the order of the documentation. */
export const ACCESS_TABLE_SERVICES: readonly DescService[] = table.map(([service]) => service);

/** Returns the rule of an RPC; undefined for an unknown RPC, which no caller may make. */
export function getAccessRule(method: DescMethod): AccessRule | undefined {
  const rules = rulesByService.get(method.parent.typeName);
  return rules !== undefined && Object.hasOwn(rules, method.localName)
    ? rules[method.localName]
    : undefined;
}
