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

/** The way in which the audit log records the calls of a method. */
export type AuditPolicy =
  /** The call only reads data that every client may read: no audit record. */
  | 'readOnly'
  /**
   * A call that agents or coordinators make all the time: no audit record. EnrollNode is recorded
   * instead.
   */
  | 'agentReport'
  /** The call changes state: one audit record, committed together with the change. */
  | 'change'
  /**
   * The call is privileged and changes no state: one audit record, committed before the call
   * begins, or before its reply.
   */
  | 'privileged';

/** One policy for each method of a service: a new method does not compile without a policy. */
type Policies<Service extends { readonly method: object }> = Readonly<
  Record<keyof Service['method'], AuditPolicy>
>;

const coordinator: Policies<typeof CoordinatorService> = {
  getServerInfo: 'readOnly',
  enrollNode: 'change',
  heartbeat: 'agentReport',
  renewLease: 'agentReport',
  session: 'agentReport',
  tunnel: 'agentReport',
  // Recorded when values of secrets are sent, before the first of them.
  getReplicaFiles: 'privileged',
  getNode: 'readOnly',
  listNodes: 'readOnly',
  watchNodes: 'readOnly',
  updateNode: 'change',
  cordonNode: 'change',
  uncordonNode: 'change',
  drainNode: 'change',
  confirmNodeLost: 'change',
  removeNode: 'change',
  createWorkload: 'change',
  updateWorkload: 'change',
  scaleWorkload: 'change',
  deleteWorkload: 'change',
  getWorkload: 'readOnly',
  listWorkloads: 'readOnly',
  watchWorkloads: 'readOnly',
  watchReplicas: 'readOnly',
  listReplicas: 'readOnly',
  planWorkload: 'readOnly',
  explainWorkload: 'readOnly',
  simulateCluster: 'readOnly',
  proposeMoves: 'readOnly',
  pauseRollout: 'change',
  resumeRollout: 'change',
  promoteRollout: 'change',
  undoRollout: 'change',
  restartRollout: 'change',
  getWorkloadVersion: 'readOnly',
  // Stores a plan. The cluster changes only when the plan is executed.
  createPlan: 'change',
  getPlan: 'readOnly',
  listPlans: 'readOnly',
  executePlan: 'change',
  listEndpoints: 'readOnly',
  watchEndpoints: 'readOnly',
  listEvents: 'readOnly',
  watchEvents: 'readOnly',
  streamLogs: 'readOnly',
  execCommand: 'privileged',
  exec: 'privileged',
  portForward: 'privileged',
};

const agent: Policies<typeof AgentService> = {
  streamLogs: 'readOnly',
  execCommand: 'privileged',
  exec: 'privileged',
  portForward: 'privileged',
  getContainerStatus: 'readOnly',
  listContainers: 'readOnly',
  getContainerStats: 'readOnly',
  listContainerStats: 'readOnly',
};

const admin: Policies<typeof AdminService> = {
  // Privileged, because the client receives the whole state of the cluster.
  backup: 'privileged',
  // Contains less than a viewer reads with calls that are not audited.
  snapshot: 'readOnly',
  acceptRestoredState: 'change',
  stepDown: 'privileged',
};

const identity: Policies<typeof IdentityService> = {
  createJoinToken: 'change',
  listJoinTokens: 'readOnly',
  revokeJoinToken: 'change',
  renewNodeCertificate: 'agentReport',
  issueWorkloadCertificate: 'agentReport',
  // The call that the agent asks about is recorded instead, under the name of its caller.
  authorizeAgentCall: 'agentReport',
  banNode: 'change',
  unbanNode: 'change',
  listNodeBans: 'readOnly',
  getCertificateAuthority: 'readOnly',
  rotateCertificateAuthority: 'change',
  skipCertificateAuthorityWait: 'change',
  // Privileged, because the caller receives the keys of the certificate authority.
  fetchAuthorityKeys: 'privileged',
  // The refused calls are recorded instead.
  recordRefusedCalls: 'agentReport',
};

const user: Policies<typeof UserService> = {
  createUser: 'change',
  listUsers: 'readOnly',
  deleteUser: 'change',
  grant: 'change',
  revoke: 'change',
  createUserToken: 'change',
  listUserTokens: 'readOnly',
  revokeUserToken: 'change',
  issueUserCertificate: 'change',
  whoAmI: 'readOnly',
};

const network: Policies<typeof NetworkService> = {
  createService: 'change',
  getService: 'readOnly',
  listServices: 'readOnly',
  updateService: 'change',
  deleteService: 'change',
  watchServices: 'readOnly',
  registerEndpoint: 'change',
  deregisterEndpoint: 'change',
  listEndpoints: 'readOnly',
  // Calls of users are recorded, and the results of the checks that nodes make are not.
  updateEndpointHealth: 'change',
  getLoadBalancerConfig: 'readOnly',
  updateLoadBalancerConfig: 'change',
  resolveService: 'readOnly',
  watchServiceEndpoints: 'readOnly',
  createRoute: 'change',
  getRoute: 'readOnly',
  listRoutes: 'readOnly',
  updateRoute: 'change',
  deleteRoute: 'change',
};

const policyCalls: Policies<typeof PolicyService> = {
  createPolicy: 'change',
  getPolicy: 'readOnly',
  listPolicies: 'readOnly',
  updatePolicy: 'change',
  deletePolicy: 'change',
  watchPolicies: 'readOnly',
  testPolicy: 'readOnly',
};

const configs: Policies<typeof ConfigsService> = {
  createConfig: 'change',
  getConfig: 'readOnly',
  listConfigs: 'readOnly',
  updateConfig: 'change',
  deleteConfig: 'change',
  watchConfigs: 'readOnly',
};

const nodeNetwork: Policies<typeof NodeNetworkService> = {
  syncNetwork: 'agentReport',
  relayNetwork: 'agentReport',
  // Recorded before the certificate and the key are sent.
  getRouteCertificate: 'privileged',
};

const secrets: Policies<typeof SecretsService> = {
  createSecret: 'change',
  // With an access token, whose use is counted. Without, only refusals are recorded.
  getSecret: 'change',
  listSecrets: 'readOnly',
  updateSecret: 'change',
  deleteSecret: 'change',
  generateAccessToken: 'change',
  revokeAccessToken: 'change',
  // Shows who tries tokens.
  validateAccessToken: 'privileged',
  rotateMasterKey: 'change',
  getMasterKeyInfo: 'readOnly',
  // Only refusals are recorded.
  getSecretAuditLog: 'readOnly',
};

const policies: Readonly<Record<string, Readonly<Record<string, AuditPolicy>>>> = {
  [ConfigsService.typeName]: configs,
  [CoordinatorService.typeName]: coordinator,
  [AgentService.typeName]: agent,
  [AdminService.typeName]: admin,
  [IdentityService.typeName]: identity,
  [NetworkService.typeName]: network,
  [NodeNetworkService.typeName]: nodeNetwork,
  [PolicyService.typeName]: policyCalls,
  [SecretsService.typeName]: secrets,
  [UserService.typeName]: user,
};

/** Returns the audit policy of a method; undefined for a method of another service. */
export function getAuditPolicy(method: DescMethod): AuditPolicy | undefined {
  return policies[method.parent.typeName]?.[method.localName];
}
