import type { Clock, Log, Random } from '@cloudless/base';
import type { ContainerRuntime } from '@cloudless/runtime';
import type { AgentStore } from '../store/agent-store.js';
import type { CoordinatorContact } from '../session/coordinator-contact.js';
import type { ProbeClients } from '../probes/check-container.js';
import type { TcpConnect } from '../container/wait-for-ports.js';
import type { StartQueue } from '../container/start-queue.js';
import type { ReplicaEgress } from '../egress/replica-egress.js';
import type { ReplicaFiles } from '../files/replica-files.js';
import type { NodeNetworkAccess } from '../network/node-network.js';
import type { WorkloadIdentities } from '../workload-identity/workload-identities.js';

/** Ports and parts of the node that the runner of a replica uses. */
export interface ReplicaRunnerDeps {
  readonly clusterId: () => string;
  readonly nodeId: string;
  readonly bootId: string;
  readonly runtime: ContainerRuntime;
  readonly store: AgentStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly connect: TcpConnect;
  readonly probeClients: ProbeClients;
  /** Start queue of the node, shared by all replicas. */
  readonly starts: StartQueue;
  /** Contact with coordinators; the leases of exclusive replicas depend on it. */
  readonly contact: CoordinatorContact;
  /** Certificates of replicas. Absent: this node gives replicas no identity. */
  readonly workloadIdentities?: WorkloadIdentities | undefined;
  /** Secrets and configs of replicas. Absent: this node delivers none. */
  readonly files?: ReplicaFiles | undefined;
  /** The network proxy of the node. Absent: containers get no addresses of services. */
  readonly network?: NodeNetworkAccess | undefined;
  /** Services among the destinations of containers. Absent: containers reach none of them. */
  readonly egress?: ReplicaEgress | undefined;
  /** Called after every change that is part of a report. */
  readonly onChanged: (replicaId: string) => void;
  /** Called once all data of the replica has been removed. */
  readonly onForgotten: (replicaId: string) => void;
}
