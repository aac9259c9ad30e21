export { RealCluster, SERVER_COMMAND } from './cluster.js';
export {
  RunningProgram,
  findBundle,
  listProcessesMentioning,
  repository,
  runToEnd,
} from './processes.js';
export type { FinishedProgram } from './processes.js';
