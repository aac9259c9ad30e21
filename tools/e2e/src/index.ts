export { RealCluster, SERVER_COMMAND } from './support/cluster.js';
export {
  RunningProgram,
  findBundle,
  listProcessesMentioning,
  repository,
  runToEnd,
} from './support/processes.js';
export type { FinishedProgram } from './support/processes.js';
