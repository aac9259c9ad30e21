import type { Clock, Log, Meter, Random } from '@cloudless/base';
import type { ContainerRuntime } from '@cloudless/runtime';
import type { TcpConnect } from './container/wait-for-ports.js';
import type { ReplicaFileStore } from './files/replica-file-store.js';
import type { NodeIdentityOptions } from './identity/certificate-client.js';
import type { NodeNetworkAccess } from './network/node-network.js';
import type { NodeDescription } from './node/node-description.js';
import type { NodeReader } from './node/node-monitor.js';
import type { ProbeClients } from './probes/check-container.js';
import type { TcpDial } from './serving/tcp-dial.js';
import type { CoordinatorTransport } from './session/coordinator-transport.js';
import type { LeaseKeeper } from './session/lease-keeper.js';
import type { StatsReader } from './stats/stats-reader.js';
import type { AgentStore } from './store/agent-store.js';
import type { WorkloadIdentitiesOptions } from './workload-identity/workload-identities.js';

/** Options of an agent: the node, its ports to the outside, and limits. */
export interface AgentOptions {
  readonly nodeId: string;
  /** Changes at each boot of the machine. */
  readonly bootId: string;
  /** Base addresses of coordinators, at least one. The agent tries one after the other. */
  readonly coordinators: readonly string[];
  readonly transport: CoordinatorTransport;
  /** Identity of the node, in a cluster with identities. Absent: the cluster has none. */
  readonly nodeIdentity?: NodeIdentityOptions;
  /**
   * Keeps the lease of the node while the main loop of the agent does not turn. Absent: the node is
   * then lost when its lease ends.
   */
  readonly leaseKeeper?: LeaseKeeper;
  readonly runtime: ContainerRuntime;
  /**
   * Called with the cluster id as soon as the agent knows it: at the start when the id is stored,
   * otherwise after the enrolment and before the first Hello. Containers belong to a cluster, so
   * the agent lists the runtime's containers only after the promise resolves.
   */
  readonly onClusterKnown?: (clusterId: string) => Promise<void>;
  readonly store: AgentStore;
  readonly nodeReader: NodeReader;
  /**
   * Describes the node for the Hello of a session. Called often: another address in `network` begins a
   * new session, and the agent's own address is known only after its server listens.
   */
  readonly node: () => NodeDescription;
  /**
   * Tests whether a port of a replica accepts TCP connections: for TCP probes, and for readiness
   * without a probe.
   */
  readonly connect: TcpConnect;
  /** Opens TCP connections to ports of replicas. Absent: the agent rejects PortForward. */
  readonly dial?: TcpDial;
  readonly probeClients: ProbeClients;
  /** The network proxy of this node. Absent: the node has none. */
  readonly network?: NodeNetworkAccess;
  /** Files and keys of the identities of replicas. Absent: this node gives replicas no identity. */
  readonly workloadIdentity?: Pick<WorkloadIdentitiesOptions, 'files' | 'createKeyAndCsr'>;
  /**
   * True: the configuration makes `runtime` start no processes. Only such a node advertises
   * `identity.workload`, because a process runs as the user of the agent and could read the keys of
   * all replicas. The capabilities of `runtime` do not tell: a process may run although its runtime
   * reports none. Default false.
   */
  readonly deniesProcesses?: boolean;
  /** Place of the secrets and configs of replicas. Absent: this node delivers none. */
  readonly replicaFiles?: ReplicaFileStore;
  /** Reads resource usage of containers. Absent: the agent has no statistics. */
  readonly stats?: StatsReader;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /** Command by which an operator makes this agent forget its cluster; part of error messages. */
  readonly resetCommand: string;
  /**
   * Maximum number of containers that are being started at the same time, 1 or more. Default 4.
   * Does not limit stops.
   */
  readonly startConcurrency?: number;
  /** Default: no metrics. */
  readonly meter?: Meter;
}
