export { Agent } from './agent.js';
export type { AgentOptions } from './agent-options.js';
export type {
  AgentIdentity,
  AgentStore,
  SaveOptions,
  StoredAgent,
  StoredCoordinator,
  StoredProgress,
  StoredReplica,
} from './store/agent-store.js';
export type {
  CoordinatorConnection,
  CoordinatorTransport,
  IdentityCalls,
} from './session/coordinator-transport.js';
export { SerialQueue } from './store/serial-queue.js';
export type { NodeDescription } from './node/node-description.js';
export type { StatsReader } from './stats/stats-reader.js';
export type { NodeReader, NodeReading, ConditionReading } from './node/node-monitor.js';
export { UNAVAILABLE_AFTER_MS } from './node/runtime-health-monitor.js';
export type { TcpConnect } from './container/wait-for-ports.js';
export type { ProbeClients, ProbeTarget } from './probes/check-container.js';
export { ContainerService } from './serving/container-service.js';
export type { AdmitCall, ContainerServiceOptions } from './serving/container-service.js';
export type { ContainerSelector } from './serving/container-lookup.js';
export type {
  NodeNetworkAccess,
  ReachableService,
  ServiceAccess,
  ServiceAddress,
} from './network/node-network.js';
export type { TcpDial, TcpStream } from './serving/tcp-dial.js';
export { toContainerRequest } from './container/to-container-request.js';
export type { IdentityDirectory } from './container/identity-directory.js';
export type { ContainerIdentity } from './container/to-container-request.js';
export { toReplicaTarget } from './replica/replica-target.js';
export type { ReplicaTarget } from './replica/replica-target.js';
export { CONTAINER_LABELS, fromContainerLabels } from './container/container-labels.js';
export type { ContainerOwner } from './container/container-labels.js';
export { isEnded, isForward, isPhase } from './replica/replica-phase.js';
export type { ReplicaPhase } from './replica/replica-phase.js';
export type { KeptSession, LeaseKeeper } from './session/lease-keeper.js';
export type { CertificateRequest, IdentityFacts, NodeIdentity } from './identity/node-identity.js';
export type { IdentityFileName, IdentityFiles } from './identity/identity-files.js';
export { NodeIdentityStore } from './identity/node-identity-store.js';
export { NodeIdentityKeeper } from './identity/node-identity-keeper.js';
export type { NodeIdentityOptions } from './identity/certificate-client.js';
export { WorkloadIdentities } from './workload-identity/workload-identities.js';
export type { WorkloadIdentitiesOptions } from './workload-identity/workload-identities.js';
export type {
  CredentialReader,
  StoredWorkloadCredential,
  WorkloadCredential,
  WorkloadIdentityFiles,
} from './workload-identity/workload-identity-files.js';
export type { FileSet, ReplicaFileStore, ReplicaValues } from './files/replica-file-store.js';
