export { Agent } from './agent.js';
export type { AgentOptions } from './agent.js';
export type {
  AgentIdentity,
  AgentStore,
  StoredAgent,
  StoredProgress,
  StoredReplica,
} from './agent-store.js';
export type {
  CoordinatorConnection,
  CoordinatorTransport,
} from './session/coordinator-transport.js';
export type { NodeDescription } from './session/node-description.js';
export type { StatsReader } from './stats/stats-reader.js';
export type { NodeReader, NodeReading, ConditionReading } from './node-watch.js';
export type { TcpConnect } from './replica/await-ready.js';
export type { ProbeClients, ProbeTarget } from './probes/check-container.js';
export { ContainerService } from './serving/container-service.js';
export type { ContainerServiceOptions } from './serving/container-service.js';
export type { TcpDial, TcpStream } from './serving/tcp-dial.js';
export { toContainerRequest } from './replica/to-container-request.js';
export type { ContainerIdentity } from './replica/to-container-request.js';
export { toReplicaTarget } from './replica/replica-plan.js';
export type { ReplicaTarget } from './replica/replica-plan.js';
export { CONTAINER_LABELS, fromContainerLabels } from './replica/container-labels.js';
export type { ContainerOwner } from './replica/container-labels.js';
export { isEnded, isForward, isPhase } from './replica/replica-state.js';
export type { ReplicaPhase } from './replica/replica-state.js';
