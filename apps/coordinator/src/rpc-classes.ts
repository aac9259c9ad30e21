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
import type { CallClass, ClassifyCall } from '@cloudless/rpc-node/server';

/** One class for each RPC of a service: a new RPC without a class does not compile. */
type ClassByRpc<Service extends { readonly method: object }> = {
  readonly [Rpc in keyof Service['method']]: CallClass;
};

const control: CallClass = { priority: 'control' };
const stop: CallClass = { priority: 'stop' };
const write: CallClass = { priority: 'write' };
const read: CallClass = { priority: 'read' };
const watch: CallClass = { priority: 'read', interleaved: true };

/**
 * Classes of the RPCs of CoordinatorService. Priority `stop` is for calls that reduce load, keep load
 * off a node, or must not wait behind changes. Stop orders to agents are sent through sessions,
 * which have priority `control`. Every ScaleWorkload has priority `stop`, because the server knows
 * only after decoding the request whether it scales up or down.
 */
const coordinatorClasses: ClassByRpc<typeof CoordinatorService> = {
  enrollNode: control,
  heartbeat: control,
  renewLease: control,
  // A coordinator that starts gets the inventories of all agents at once.
  session: { ...control, readsInTurns: true },
  tunnel: control,
  getReplicaFiles: control,
  getServerInfo: read,
  getNode: read,
  listNodes: read,
  watchNodes: watch,
  updateNode: write,
  cordonNode: stop,
  uncordonNode: write,
  drainNode: stop,
  confirmNodeLost: stop,
  removeNode: stop,
  createWorkload: write,
  updateWorkload: write,
  scaleWorkload: stop,
  deleteWorkload: stop,
  getWorkload: read,
  listWorkloads: read,
  watchWorkloads: watch,
  watchReplicas: watch,
  listReplicas: read,
  planWorkload: read,
  explainWorkload: read,
  simulateCluster: read,
  proposeMoves: read,
  pauseRollout: stop,
  resumeRollout: write,
  promoteRollout: write,
  undoRollout: write,
  restartRollout: write,
  getWorkloadVersion: read,
  createPlan: write,
  getPlan: read,
  listPlans: read,
  executePlan: write,
  listEndpoints: read,
  watchEndpoints: watch,
  listEvents: read,
  watchEvents: watch,
  streamLogs: read,
  execCommand: { priority: 'write', longRunning: true },
  exec: write,
  portForward: write,
};

const agentClasses: ClassByRpc<typeof AgentService> = {
  streamLogs: read,
  execCommand: { priority: 'write', longRunning: true },
  exec: write,
  portForward: write,
  getContainerStatus: read,
  listContainers: read,
  getContainerStats: read,
  listContainerStats: read,
};

const adminClasses: ClassByRpc<typeof AdminService> = {
  backup: read,
  snapshot: read,
  acceptRestoredState: write,
  stepDown: stop,
};

const identityClasses: ClassByRpc<typeof IdentityService> = {
  createJoinToken: write,
  listJoinTokens: read,
  // Less access is as urgent as less load.
  revokeJoinToken: stop,
  // Agents whose certificates expire lose their nodes.
  renewNodeCertificate: control,
  // A replica whose certificate expires is refused by its peers.
  issueWorkloadCertificate: stop,
  authorizeAgentCall: write,
  banNode: stop,
  unbanNode: write,
  listNodeBans: read,
  getCertificateAuthority: read,
  rotateCertificateAuthority: write,
  skipCertificateAuthorityWait: write,
  // A rotation waits for it, and an election may need it.
  fetchAuthorityKeys: control,
  recordRefusedCalls: write,
};

const userClasses: ClassByRpc<typeof UserService> = {
  createUser: write,
  listUsers: read,
  deleteUser: stop,
  grant: write,
  revoke: stop,
  createUserToken: write,
  listUserTokens: read,
  revokeUserToken: stop,
  // A user whose certificate expires is locked out, so a renewal goes before the user's own writes.
  issueUserCertificate: stop,
  whoAmI: read,
};

const networkClasses: ClassByRpc<typeof NetworkService> = {
  createService: write,
  getService: read,
  listServices: read,
  updateService: write,
  deleteService: stop,
  watchServices: watch,
  registerEndpoint: write,
  deregisterEndpoint: stop,
  listEndpoints: read,
  updateEndpointHealth: write,
  getLoadBalancerConfig: read,
  updateLoadBalancerConfig: write,
  resolveService: read,
  watchServiceEndpoints: watch,
  createRoute: write,
  getRoute: read,
  listRoutes: read,
  updateRoute: write,
  deleteRoute: stop,
};

const policyClasses: ClassByRpc<typeof PolicyService> = {
  createPolicy: write,
  getPolicy: read,
  listPolicies: read,
  updatePolicy: write,
  deletePolicy: stop,
  watchPolicies: watch,
  testPolicy: read,
};

const configsClasses: ClassByRpc<typeof ConfigsService> = {
  createConfig: write,
  getConfig: read,
  listConfigs: read,
  updateConfig: write,
  deleteConfig: stop,
  watchConfigs: watch,
};

const secretClasses: ClassByRpc<typeof SecretsService> = {
  createSecret: write,
  // Commits the use of an access token.
  getSecret: write,
  listSecrets: read,
  updateSecret: write,
  deleteSecret: stop,
  generateAccessToken: write,
  revokeAccessToken: stop,
  validateAccessToken: read,
  rotateMasterKey: write,
  getMasterKeyInfo: read,
  getSecretAuditLog: read,
};

const nodeNetworkClasses: ClassByRpc<typeof NodeNetworkService> = {
  // Proxies that do not learn which replicas are gone send connections into the void.
  syncNetwork: control,
  relayNetwork: write,
  // Without its certificate, a node refuses the clients of a route.
  getRouteCertificate: stop,
};

const classesByService: Readonly<Record<string, Readonly<Record<string, CallClass>>>> = {
  [CoordinatorService.typeName]: coordinatorClasses,
  [AgentService.typeName]: agentClasses,
  [AdminService.typeName]: adminClasses,
  [IdentityService.typeName]: identityClasses,
  [NetworkService.typeName]: networkClasses,
  [NodeNetworkService.typeName]: nodeNetworkClasses,
  [ConfigsService.typeName]: configsClasses,
  [PolicyService.typeName]: policyClasses,
  [SecretsService.typeName]: secretClasses,
  [UserService.typeName]: userClasses,
};

/**
 * Largest request of EnrollNode, which strangers may call: ids, a token and a request for a
 * certificate, which have together a few hundred bytes.
 */
const MAX_ENROLMENT_BYTES = 16 * 1024;

/**
 * Returns the class of an RPC in a cluster with TLS. There, an agent enrols once and not at each
 * start, and everybody can call EnrollNode, so these calls do not go before those of users.
 */
export const classifySecureRpc: ClassifyCall = (method) =>
  method === CoordinatorService.method.enrollNode
    ? { priority: 'write', maxRequestBytes: MAX_ENROLMENT_BYTES }
    : classifyRpc(method);

/** Returns the class of an RPC; undefined for an RPC that the coordinator does not serve. */
export const classifyRpc: ClassifyCall = ({ parent, localName }) =>
  classesByService[parent.typeName]?.[localName];
