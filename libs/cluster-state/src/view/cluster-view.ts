import type { Event } from '@cloudless/api';
import type {
  AccessTokenRecord,
  CertificateAuthorityRecord,
  ConfigRecord,
  ControlRecord,
  CoordinatorRecord,
  CredentialRecord,
  EndpointRecord,
  EvidenceRecord,
  FilesGuardRecord,
  FilesUseRecord,
  JoinTokenRecord,
  NetworkSettingsRecord,
  NodePortRecord,
  MasterKeyRecord,
  NodeBanRecord,
  NodeRecord,
  PlanRecord,
  PolicyGuardRecord,
  PolicyRecord,
  RemovedEventsRecord,
  ReplicaRecord,
  RequestRecord,
  RouteGuardRecord,
  RouteRecord,
  SecretRecord,
  ServiceAddressRecord,
  ServiceRecord,
  UserRecord,
  VersionRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import type { Revision } from '@cloudless/state-store';
import type { EventSubject } from './event-index.js';
import type { Stored } from './record-change.js';
import type { ReplicaCounts } from './replica-counts.js';

/**
 * The cluster's state at one revision. Records are shared and read-only: copy a record to change
 * it.
 */
export interface ClusterView {
  readonly revision: Revision;
  workload(uid: string): Stored<WorkloadRecord> | undefined;
  workloadByName(namespace: string, name: string): Stored<WorkloadRecord> | undefined;
  workloads(): Iterable<Stored<WorkloadRecord>>;
  readonly workloadCount: number;
  /**
   * Workloads by namespace and name, ascending. Reads only as many as the caller takes; the view
   * must not change during the iteration.
   * @param after - Only workloads after this key, `<namespace>/<name>`. Default: all workloads.
   */
  workloadsByName(after?: string): Iterable<Stored<WorkloadRecord>>;
  control(uid: string): Stored<ControlRecord> | undefined;
  /** The readiness guard: changes whenever a replica of the workload stops being ready. */
  readinessGuard(uid: string): Stored<EvidenceRecord> | undefined;
  plan(id: string): Stored<PlanRecord> | undefined;
  plans(): Iterable<readonly [string, Stored<PlanRecord>]>;
  version(uid: string, version: number): VersionRecord | undefined;
  /** The kept versions of a workload, ascending. */
  versions(uid: string): readonly VersionRecord[];
  replica(id: string): Stored<ReplicaRecord> | undefined;
  replicas(): Iterable<Stored<ReplicaRecord>>;
  replicasOf(uid: string): Iterable<Stored<ReplicaRecord>>;
  /**
   * Replicas of a workload, oldest first. Reads only as many as the caller takes; the view must not
   * change during the iteration.
   * @param after - Only replicas with a higher sequence number. Default: all replicas.
   */
  replicasInOrder(uid: string, after?: number): Iterable<Stored<ReplicaRecord>>;
  /**
   * Numbers of the replicas of a workload, without a walk over very many replicas. They may follow
   * later changes: read them before an `await`.
   */
  replicaCounts(uid: string): ReplicaCounts;
  /** The replicas with a node. Copy them before an `await`: the iteration follows later changes. */
  replicasOn(nodeId: string): Iterable<Stored<ReplicaRecord>>;
  /** Replicas that wait for a node: in phase PENDING, without a node, and not ordered to stop. */
  unplaced(): Iterable<Stored<ReplicaRecord>>;
  /** Replicas whose node was lost: tombstones, and those that were stopped since. */
  lostReplicas(): Iterable<Stored<ReplicaRecord>>;
  node(id: string): Stored<NodeRecord> | undefined;
  nodes(): Iterable<Stored<NodeRecord>>;
  readonly nodeCount: number;
  /**
   * Nodes by id, ascending, as {@link workloadsByName} lists workloads.
   * @param after - Only nodes after this id. Default: all nodes.
   */
  nodesById(after?: string): Iterable<Stored<NodeRecord>>;
  /** Nodes that are draining or drained, until they are uncordoned. */
  drainingNodes(): Iterable<Stored<NodeRecord>>;
  /** All kept events, oldest first. */
  events(): readonly Event[];
  /** The newest kept event about a replica that still has a record. */
  lastEventOfReplica(replicaId: string): Event | undefined;
  /** The newest kept event with one of these reasons about a workload or node as a whole. */
  lastEvent(subject: EventSubject, reasons: readonly string[]): Event | undefined;
  event(id: string): Stored<Event> | undefined;
  /**
   * The kept audit records about a secret, oldest first; also about a secret that was deleted.
   * @param key - `<namespace>/<name>`.
   */
  auditEventsOfSecret(key: string): readonly Event[];
  request(id: string): Stored<RequestRecord> | undefined;
  requests(): Iterable<readonly [string, Stored<RequestRecord>]>;
  /** The newest removed event of each category; undefined when no event was removed. */
  removedEvents(): Stored<RemovedEventsRecord> | undefined;
  /** The certificate authority; undefined in a cluster without identities. */
  certificateAuthority(): Stored<CertificateAuthorityRecord> | undefined;
  joinToken(id: string): Stored<JoinTokenRecord> | undefined;
  joinTokens(): Iterable<Stored<JoinTokenRecord>>;
  user(name: string): Stored<UserRecord> | undefined;
  users(): Iterable<Stored<UserRecord>>;
  credential(id: string): Stored<CredentialRecord> | undefined;
  credentials(): Iterable<Stored<CredentialRecord>>;
  /** The ban of a node; undefined when the node is not banned. */
  nodeBan(nodeId: string): Stored<NodeBanRecord> | undefined;
  nodeBans(): Iterable<Stored<NodeBanRecord>>;
  /** The coordinators that run, or ran until a few seconds ago. */
  coordinators(): Iterable<Stored<CoordinatorRecord>>;
  /** @param key - `<namespace>/<name>`. */
  service(key: string): Stored<ServiceRecord> | undefined;
  services(): Iterable<Stored<ServiceRecord>>;
  /**
   * An endpoint outside the cluster.
   * @param key - `<namespace>/<service>/<endpoint id>`.
   */
  externalEndpoint(key: string): Stored<EndpointRecord> | undefined;
  /** The endpoints outside the cluster with their keys. */
  externalEndpoints(): Iterable<readonly [string, Stored<EndpointRecord>]>;
  /**
   * Services by namespace and name, as {@link workloadsByName} lists workloads.
   * @param after - Only services after this key, `<namespace>/<name>`. Default: all services.
   */
  servicesByName(after?: string): Iterable<Stored<ServiceRecord>>;
  /** The services whose endpoints are replicas of a workload. */
  servicesSelecting(workload: WorkloadRecord): Iterable<Stored<ServiceRecord>>;
  /** The workloads whose replicas are endpoints of a service, in any order. */
  workloadsSelectedBy(service: ServiceRecord): Iterable<Stored<WorkloadRecord>>;
  /**
   * The endpoints outside the cluster of a service, without those of a deleted service of the same
   * name.
   * @param serviceKey - `<namespace>/<name>`.
   */
  externalEndpointsOf(serviceKey: string): Iterable<Stored<EndpointRecord>>;
  /** The record of a virtual address that is taken, or was taken within the last hour. */
  serviceAddress(address: string): Stored<ServiceAddressRecord> | undefined;
  serviceAddresses(): Iterable<readonly [string, Stored<ServiceAddressRecord>]>;
  /** @param id - Such as `tcp/30080`, or `tcp/203.0.113.9/443` for an external address. */
  nodePort(id: string): Stored<NodePortRecord> | undefined;
  nodePorts(): Iterable<readonly [string, Stored<NodePortRecord>]>;
  /** @param key - `<namespace>/<name>`. */
  route(key: string): Stored<RouteRecord> | undefined;
  routes(): Iterable<Stored<RouteRecord>>;
  /**
   * Routes by namespace and name, as {@link workloadsByName} lists workloads.
   * @param after - Only routes after this key, `<namespace>/<name>`. Default: all routes.
   */
  routesByName(after?: string): Iterable<Stored<RouteRecord>>;
  /** Changes with the hosts and paths of any route; undefined before the first route. */
  routeGuard(): Stored<RouteGuardRecord> | undefined;
  policy(name: string): Stored<PolicyRecord> | undefined;
  policies(): Iterable<Stored<PolicyRecord>>;
  /** Changes with any policy; undefined before the first policy. */
  policyGuard(): Stored<PolicyGuardRecord> | undefined;
  /**
   * A config, without its values.
   * @param key - `<namespace>/<name>`.
   */
  config(key: string): Stored<ConfigRecord> | undefined;
  configs(): Iterable<Stored<ConfigRecord>>;
  /**
   * Configs by namespace and name, as {@link workloadsByName} lists workloads.
   * @param after - Only configs after this key, `<namespace>/<name>`. Default: all configs.
   */
  configsByName(after?: string): Iterable<Stored<ConfigRecord>>;
  /** Changes with each new use of a secret or config of a namespace; undefined before the first. */
  filesUse(namespace: string): Stored<FilesUseRecord> | undefined;
  /** Changes with any secret or config of a namespace; undefined before the first of them. */
  filesGuard(namespace: string): Stored<FilesGuardRecord> | undefined;
  /**
   * A secret, without its values.
   * @param key - `<namespace>/<name>`.
   */
  secret(key: string): Stored<SecretRecord> | undefined;
  secrets(): Iterable<Stored<SecretRecord>>;
  /**
   * Secrets sorted by namespace and name.
   * @param after - `<namespace>/<name>`; only secrets whose key sorts after it. Default: all.
   */
  secretsByName(after?: string): Iterable<Stored<SecretRecord>>;
  /** An access token, also one that has ended. */
  accessToken(id: string): Stored<AccessTokenRecord> | undefined;
  accessTokens(): Iterable<Stored<AccessTokenRecord>>;
  /**
   * The access tokens of a secret, also those that have ended, in any order.
   * @param secretUid - Uid of the secret: a secret that is created again has no tokens.
   */
  accessTokensOf(secretUid: string): Iterable<Stored<AccessTokenRecord>>;
  /** A key that encrypts secrets, itself encrypted. */
  masterKey(id: string): Stored<MasterKeyRecord> | undefined;
  masterKeys(): Iterable<Stored<MasterKeyRecord>>;
  /** Settings of the network; undefined before the first leader has stored them. */
  networkSettings(): Stored<NetworkSettingsRecord> | undefined;
}
