export { ScriptedAgent } from './scripted-agent.js';
export type { StartBehaviour } from './scripted-agent.js';
export { TestCluster } from './test-cluster.js';
export type { TestClusterOptions } from './test-cluster.js';
