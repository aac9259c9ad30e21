import type { DescMethod } from '@bufbuild/protobuf';
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

/** The coordinators that serve a call. */
export type ServedBy =
  /**
   * The leader: the call changes the state, or needs the sessions, tunnels or predictions that only
   * the leader has. The other coordinators forward the call to the leader.
   */
  | 'leader'
  /**
   * The leader, called directly: a stream of an agent, whose connection is the lease of its node, or
   * a call of another coordinator itself.
   * The other coordinators refuse the call with the address of the leader.
   */
  | 'leaderDirectly'
  /** Every coordinator, from the records in its view. */
  | 'records'
  /**
   * Every coordinator, from the records in its view and the live status of nodes, of which a
   * coordinator that follows has a copy.
   */
  | 'liveStatus';

/** One row for each RPC of a service: a new RPC without a row does not compile. */
type Rows<Service extends { readonly method: object }> = {
  readonly [Rpc in keyof Service['method']]: ServedBy;
};

const coordinator: Rows<typeof CoordinatorService> = {
  getServerInfo: 'records',
  enrollNode: 'leader',
  heartbeat: 'leader',
  renewLease: 'leader',
  session: 'leaderDirectly',
  tunnel: 'leaderDirectly',
  // The leader knows first when a replica has left a node.
  getReplicaFiles: 'leader',
  getNode: 'liveStatus',
  listNodes: 'liveStatus',
  watchNodes: 'liveStatus',
  updateNode: 'leader',
  cordonNode: 'leader',
  uncordonNode: 'leader',
  drainNode: 'leader',
  confirmNodeLost: 'leader',
  removeNode: 'leader',
  createWorkload: 'leader',
  updateWorkload: 'leader',
  scaleWorkload: 'leader',
  deleteWorkload: 'leader',
  getWorkload: 'liveStatus',
  listWorkloads: 'liveStatus',
  watchWorkloads: 'liveStatus',
  watchReplicas: 'liveStatus',
  listReplicas: 'liveStatus',
  planWorkload: 'leader',
  explainWorkload: 'leader',
  pauseRollout: 'leader',
  resumeRollout: 'leader',
  promoteRollout: 'leader',
  undoRollout: 'leader',
  restartRollout: 'leader',
  getWorkloadVersion: 'records',
  createPlan: 'leader',
  listPlans: 'records',
  getPlan: 'records',
  executePlan: 'leader',
  simulateCluster: 'leader',
  proposeMoves: 'leader',
  listEndpoints: 'records',
  watchEndpoints: 'records',
  listEvents: 'records',
  watchEvents: 'records',
  streamLogs: 'leader',
  execCommand: 'leader',
  exec: 'leader',
  portForward: 'leader',
};

const agent: Rows<typeof AgentService> = {
  streamLogs: 'leader',
  execCommand: 'leader',
  exec: 'leader',
  portForward: 'leader',
  getContainerStatus: 'leader',
  listContainers: 'records',
  getContainerStats: 'leader',
  listContainerStats: 'leader',
};

const admin: Rows<typeof AdminService> = {
  // Written to the audit log before the first byte, so the leader serves the backup.
  backup: 'leader',
  snapshot: 'leader',
  acceptRestoredState: 'leader',
  stepDown: 'leader',
};

const identity: Rows<typeof IdentityService> = {
  createJoinToken: 'leader',
  listJoinTokens: 'records',
  revokeJoinToken: 'leader',
  renewNodeCertificate: 'leader',
  issueWorkloadCertificate: 'leader',
  authorizeAgentCall: 'leader',
  banNode: 'leader',
  unbanNode: 'leader',
  listNodeBans: 'records',
  getCertificateAuthority: 'records',
  rotateCertificateAuthority: 'leader',
  skipCertificateAuthorityWait: 'leader',
  // The certificates of the callers show that they are coordinators.
  fetchAuthorityKeys: 'leaderDirectly',
  recordRefusedCalls: 'leaderDirectly',
};

const users: Rows<typeof UserService> = {
  createUser: 'leader',
  listUsers: 'records',
  deleteUser: 'leader',
  grant: 'leader',
  revoke: 'leader',
  createUserToken: 'leader',
  listUserTokens: 'records',
  revokeUserToken: 'leader',
  issueUserCertificate: 'leader',
  whoAmI: 'records',
};

const network: Rows<typeof NetworkService> = {
  createService: 'leader',
  getService: 'records',
  listServices: 'records',
  updateService: 'leader',
  deleteService: 'leader',
  watchServices: 'records',
  registerEndpoint: 'leader',
  deregisterEndpoint: 'leader',
  listEndpoints: 'records',
  updateEndpointHealth: 'leader',
  getLoadBalancerConfig: 'records',
  updateLoadBalancerConfig: 'leader',
  resolveService: 'records',
  watchServiceEndpoints: 'records',
  createRoute: 'leader',
  getRoute: 'records',
  listRoutes: 'records',
  updateRoute: 'leader',
  deleteRoute: 'leader',
};

const policies: Rows<typeof PolicyService> = {
  createPolicy: 'leader',
  getPolicy: 'records',
  listPolicies: 'records',
  updatePolicy: 'leader',
  deletePolicy: 'leader',
  watchPolicies: 'records',
  testPolicy: 'records',
};

const configs: Rows<typeof ConfigsService> = {
  createConfig: 'leader',
  getConfig: 'records',
  listConfigs: 'records',
  updateConfig: 'leader',
  deleteConfig: 'leader',
  watchConfigs: 'records',
};

const secrets: Rows<typeof SecretsService> = {
  createSecret: 'leader',
  getSecret: 'leader',
  listSecrets: 'records',
  updateSecret: 'leader',
  deleteSecret: 'leader',
  generateAccessToken: 'leader',
  revokeAccessToken: 'leader',
  validateAccessToken: 'leader',
  rotateMasterKey: 'leader',
  getMasterKeyInfo: 'leader',
  getSecretAuditLog: 'leader',
};

const nodeNetwork: Rows<typeof NodeNetworkService> = {
  // The leader decides when all proxies have applied a removal.
  syncNetwork: 'leader',
  // Ends at a tunnel of an agent, whose session is at the leader.
  relayNetwork: 'leader',
  // Written to the audit log before the answer.
  getRouteCertificate: 'leader',
};

const rows = new Map<string, Readonly<Record<string, ServedBy>>>([
  [CoordinatorService.typeName, coordinator],
  [AgentService.typeName, agent],
  [AdminService.typeName, admin],
  [IdentityService.typeName, identity],
  [NetworkService.typeName, network],
  [NodeNetworkService.typeName, nodeNetwork],
  [ConfigsService.typeName, configs],
  [PolicyService.typeName, policies],
  [SecretsService.typeName, secrets],
  [UserService.typeName, users],
]);

/** The services of a coordinator. */
export const SERVED_SERVICES = [
  CoordinatorService,
  AgentService,
  ConfigsService,
  AdminService,
  IdentityService,
  NetworkService,
  NodeNetworkService,
  PolicyService,
  SecretsService,
  UserService,
];

/** Returns which coordinators serve an RPC; undefined for an RPC of another service. */
export function getServedBy({ parent, localName }: DescMethod): ServedBy | undefined {
  const byName = rows.get(parent.typeName);
  return byName !== undefined && Object.hasOwn(byName, localName) ? byName[localName] : undefined;
}
