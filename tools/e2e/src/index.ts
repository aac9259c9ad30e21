export { RealCluster, SERVER_COMMAND } from './support/cluster.js';
export {
  RunningProgram,
  findBundle,
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
