export { TestCluster } from './test-cluster.js';
export type { TestClusterOptions } from './test-cluster.js';
export { ScriptedAgent } from './scripted-agent.js';
export type { StartBehaviour } from './scripted-agent.js';
export { RandomWorld } from './random-world.js';
export { COMMIT_CHECKERS, unconverged, wrongBookings } from './checkers.js';
export type { Checker, Commit } from './checkers.js';
