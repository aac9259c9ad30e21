export { RealCluster, SERVER_COMMAND } from './support/cluster.js';
export {
  RunningProgram,
  findBundle,
  killAll,
  listProcessesMentioning,
  repository,
  runToEnd,
} from './support/processes.js';
export { SecretScan, listProcessTree } from './support/secret-scan.js';
export type { SecretFinding } from './support/secret-scan.js';
export type { FinishedProgram } from './support/processes.js';
export { SecureCluster } from './support/secure-cluster.js';
export type { SecureClusterOptions } from './support/secure-cluster.js';
export { CertificateUser, openTokenClients } from './support/secure-client.js';
export type { SecureClients } from './support/secure-client.js';
export { ExecCall } from './support/exec-call.js';
export { EndpointWatch } from './support/endpoint-watch.js';
export { Machines, findMachinesProblem } from './support/machines.js';
export type { Machine } from './support/machines.js';
export { RequestClient } from './support/request-client.js';
export { REQUEST_APP } from './support/rollout-tools.js';
export { findLeader, readLeadershipChanges } from './support/leader-log.js';
export { ReplicatedCluster, findEtcdProblem } from './support/replicated-cluster.js';
export type { ReplicatedCoordinator } from './support/replicated-cluster.js';
