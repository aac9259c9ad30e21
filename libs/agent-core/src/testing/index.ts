export { AgentTestBed, toPhaseName } from './agent-test-bed.js';
export { aForgetOrder, aNodeNetwork, aStartOrder, aStopOrder } from './builders.js';
export { FakeStats, createFakeSample } from './fake-stats.js';
export { FakeCoordinator } from './fake-coordinator.js';
export { MemoryAgentStore } from './memory-agent-store.js';
export { CrashError, MemoryIdentityFiles } from './memory-identity-files.js';
export { FakeAuthority } from './fake-authority.js';
export { MemoryReplicaFiles } from './memory-replica-files.js';
export { SecureAgentTestBed } from './secure-agent-test-bed.js';
