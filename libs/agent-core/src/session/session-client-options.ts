import type { OpenTunnel, ReplicaUsage, TunnelRefused } from '@cloudless/api';
import type { Clock, Log, Random } from '@cloudless/base';
import type { CertificateClient } from '../identity/certificate-client.js';
import type { NodeDescription } from '../node/node-description.js';
import type { NodeMonitor } from '../node/node-monitor.js';
import type { NodeReplicas } from '../replica/node-replicas.js';
import type { IdentityKeeper } from '../store/identity-keeper.js';
import type { CoordinatorContact } from './coordinator-contact.js';
import type { CoordinatorTransport, FileCalls } from './coordinator-transport.js';
import type { LeaseKeeper } from './lease-keeper.js';

export interface SessionClientOptions {
  readonly transport: CoordinatorTransport;
  /**
   * Configured base addresses of coordinators, at least one. The agent also dials those that the
   * cluster has named.
   */
  readonly addresses: readonly string[];
  readonly identity: IdentityKeeper;
  readonly replicas: NodeReplicas;
  /** Records every answered ping once a coordinator has admitted this node. */
  readonly contact: CoordinatorContact;
  readonly nodeMonitor: NodeMonitor;
  /** Returns the usage of the replicas in their newest samples. Default: none is reported. */
  readonly replicaUsage?: () => ReplicaUsage[];
  /** Describes the node, for each Hello. Called often, because the address of `network` may change. */
  readonly node: () => NodeDescription;
  readonly bootId: string;
  /** Returns the current capabilities of the node. */
  readonly capabilities: () => readonly string[];
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /**
   * Command by which an operator makes this agent forget its cluster; part of the error about a
   * foreign cluster.
   */
  readonly resetCommand: string;
  /** Keeps the lease while the main loop does not turn. Absent: nothing does. */
  readonly leaseKeeper?: LeaseKeeper | undefined;
  /** Joins the cluster and renews the certificate. Undefined: the cluster has no identities. */
  readonly certificates?: CertificateClient | undefined;
  /** Called and awaited when this node has been enrolled, before its Hello. */
  readonly onEnrolled: (clusterId: string) => Promise<void>;
  /**
   * Called when a coordinator has admitted this node, in each session.
   * @param calls - Calls over the connection of the session; they fail after the session.
   */
  readonly onAdmitted?: (calls: FileCalls) => void;
  /** Called when secrets or configs of these replicas have new versions. */
  readonly onFilesChanged?: (replicaIds: readonly string[]) => void;
  /** Begins to serve a tunnel and returns undefined, or returns the refusal. */
  readonly openTunnel: (request: OpenTunnel, address: string) => TunnelRefused | undefined;
}
