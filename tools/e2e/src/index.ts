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
