export { RealCluster, SERVER_COMMAND } from './cluster.js';
export { Running, bundleOf, processesMentioning, repository, runToEnd } from './processes.js';
export type { Finished } from './processes.js';
