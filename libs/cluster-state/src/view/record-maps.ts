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
  MasterKeyRecord,
  NetworkSettingsRecord,
  NodePortRecord,
  PlanRecord,
  NodeBanRecord,
  NodeRecord,
  PolicyGuardRecord,
  PolicyRecord,
  RemovedEventsRecord,
  RequestRecord,
  RouteGuardRecord,
  RouteRecord,
  SecretRecord,
  ServiceAddressRecord,
  ServiceRecord,
  UserRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import {
  CERTIFICATE_AUTHORITY_KEY,
  NETWORK_SETTINGS_KEY,
  POLICY_GUARD_KEY,
  REMOVED_EVENTS_KEY,
  ROUTE_GUARD_KEY,
  toNameKeyId,
  type RecordKind,
  type RecordOf,
} from '../records/records.js';
import type { RecordMap, Stored } from './record-change.js';
import { ReplicaTable } from './replica-table.js';

/** The records of a view by their kinds, and the reads that need no other index. */
export abstract class RecordMaps {
  protected readonly replicaTable = new ReplicaTable();
  protected readonly byKind: {
    readonly [Kind in RecordKind]: RecordMap<Stored<RecordOf<Kind>>>;
  } = {
    meta: new Map(),
    leader: new Map(),
    leaderlease: new Map(),
    coordinator: new Map(),
    workload: new Map(),
    name: new Map(),
    version: new Map(),
    control: new Map(),
    replica: this.replicaTable,
    node: new Map(),
    event: new Map(),
    request: new Map(),
    evidence: new Map(),
    plan: new Map(),
    removed: new Map(),
    ca: new Map(),
    jointoken: new Map(),
    user: new Map(),
    credential: new Map(),
    ban: new Map(),
    network: new Map(),
    service: new Map(),
    serviceip: new Map(),
    nodeport: new Map(),
    endpoint: new Map(),
    route: new Map(),
    routeguard: new Map(),
    policy: new Map(),
    policyguard: new Map(),
    config: new Map(),
    // Always empty: see `parseViewKey`.
    configvalue: new Map(),
    filesguard: new Map(),
    filesuse: new Map(),
    secret: new Map(),
    // Always empty: see `parseViewKey`.
    secretvalue: new Map(),
    accesstoken: new Map(),
    masterkey: new Map(),
  };

  /** Returns any record by its kind and the id in its key. */
  get<Kind extends RecordKind>(kind: Kind, id: string): Stored<RecordOf<Kind>> | undefined {
    return this.byKind[kind].get(id);
  }

  listIds(kind: RecordKind): Iterable<string> {
    return this.byKind[kind].keys();
  }

  /** All records with their kinds and the ids in their keys. */
  *entries(): Iterable<readonly [RecordKind, string, Stored<RecordOf<RecordKind>>]> {
    for (const [kind, records] of Object.entries(this.byKind))
      for (const [id, record] of records) yield [kind as RecordKind, id, record];
  }

  workload(uid: string): Stored<WorkloadRecord> | undefined {
    return this.byKind.workload.get(uid);
  }

  workloadByName(namespace: string, name: string): Stored<WorkloadRecord> | undefined {
    const index = this.byKind.name.get(toNameKeyId(namespace, name));
    return index === undefined ? undefined : this.byKind.workload.get(index.value.uid);
  }

  workloads(): Iterable<Stored<WorkloadRecord>> {
    return this.byKind.workload.values();
  }

  get workloadCount(): number {
    return this.byKind.workload.size;
  }

  control(uid: string): Stored<ControlRecord> | undefined {
    return this.byKind.control.get(uid);
  }

  readinessGuard(uid: string): Stored<EvidenceRecord> | undefined {
    return this.byKind.evidence.get(uid);
  }

  plan(id: string): Stored<PlanRecord> | undefined {
    return this.byKind.plan.get(id);
  }

  plans(): Iterable<readonly [string, Stored<PlanRecord>]> {
    return this.byKind.plan;
  }

  node(id: string): Stored<NodeRecord> | undefined {
    return this.byKind.node.get(id);
  }

  nodes(): Iterable<Stored<NodeRecord>> {
    return this.byKind.node.values();
  }

  get nodeCount(): number {
    return this.byKind.node.size;
  }

  event(id: string): Stored<Event> | undefined {
    return this.byKind.event.get(id);
  }

  request(id: string): Stored<RequestRecord> | undefined {
    return this.byKind.request.get(id);
  }

  requests(): Iterable<readonly [string, Stored<RequestRecord>]> {
    return this.byKind.request;
  }

  certificateAuthority(): Stored<CertificateAuthorityRecord> | undefined {
    return this.byKind.ca.get(CERTIFICATE_AUTHORITY_KEY);
  }

  joinToken(id: string): Stored<JoinTokenRecord> | undefined {
    return this.byKind.jointoken.get(id);
  }

  joinTokens(): Iterable<Stored<JoinTokenRecord>> {
    return this.byKind.jointoken.values();
  }

  user(name: string): Stored<UserRecord> | undefined {
    return this.byKind.user.get(name);
  }

  users(): Iterable<Stored<UserRecord>> {
    return this.byKind.user.values();
  }

  credential(id: string): Stored<CredentialRecord> | undefined {
    return this.byKind.credential.get(id);
  }

  credentials(): Iterable<Stored<CredentialRecord>> {
    return this.byKind.credential.values();
  }

  nodeBan(nodeId: string): Stored<NodeBanRecord> | undefined {
    return this.byKind.ban.get(nodeId);
  }

  nodeBans(): Iterable<Stored<NodeBanRecord>> {
    return this.byKind.ban.values();
  }

  coordinators(): Iterable<Stored<CoordinatorRecord>> {
    return this.byKind.coordinator.values();
  }

  service(key: string): Stored<ServiceRecord> | undefined {
    return this.byKind.service.get(key);
  }

  services(): Iterable<Stored<ServiceRecord>> {
    return this.byKind.service.values();
  }

  externalEndpoint(key: string): Stored<EndpointRecord> | undefined {
    return this.byKind.endpoint.get(key);
  }

  externalEndpoints(): Iterable<readonly [string, Stored<EndpointRecord>]> {
    return this.byKind.endpoint;
  }

  serviceAddress(address: string): Stored<ServiceAddressRecord> | undefined {
    return this.byKind.serviceip.get(address);
  }

  serviceAddresses(): Iterable<readonly [string, Stored<ServiceAddressRecord>]> {
    return this.byKind.serviceip;
  }

  nodePort(id: string): Stored<NodePortRecord> | undefined {
    return this.byKind.nodeport.get(id);
  }

  nodePorts(): Iterable<readonly [string, Stored<NodePortRecord>]> {
    return this.byKind.nodeport;
  }

  route(key: string): Stored<RouteRecord> | undefined {
    return this.byKind.route.get(key);
  }

  routes(): Iterable<Stored<RouteRecord>> {
    return this.byKind.route.values();
  }

  routeGuard(): Stored<RouteGuardRecord> | undefined {
    return this.byKind.routeguard.get(ROUTE_GUARD_KEY);
  }

  policy(name: string): Stored<PolicyRecord> | undefined {
    return this.byKind.policy.get(name);
  }

  policies(): Iterable<Stored<PolicyRecord>> {
    return this.byKind.policy.values();
  }

  policyGuard(): Stored<PolicyGuardRecord> | undefined {
    return this.byKind.policyguard.get(POLICY_GUARD_KEY);
  }

  config(key: string): Stored<ConfigRecord> | undefined {
    return this.byKind.config.get(key);
  }

  configs(): Iterable<Stored<ConfigRecord>> {
    return this.byKind.config.values();
  }

  filesUse(namespace: string): Stored<FilesUseRecord> | undefined {
    return this.byKind.filesuse.get(namespace);
  }

  filesGuard(namespace: string): Stored<FilesGuardRecord> | undefined {
    return this.byKind.filesguard.get(namespace);
  }

  secret(key: string): Stored<SecretRecord> | undefined {
    return this.byKind.secret.get(key);
  }

  secrets(): Iterable<Stored<SecretRecord>> {
    return this.byKind.secret.values();
  }

  accessToken(id: string): Stored<AccessTokenRecord> | undefined {
    return this.byKind.accesstoken.get(id);
  }

  accessTokens(): Iterable<Stored<AccessTokenRecord>> {
    return this.byKind.accesstoken.values();
  }

  masterKey(id: string): Stored<MasterKeyRecord> | undefined {
    return this.byKind.masterkey.get(id);
  }

  masterKeys(): Iterable<Stored<MasterKeyRecord>> {
    return this.byKind.masterkey.values();
  }

  networkSettings(): Stored<NetworkSettingsRecord> | undefined {
    return this.byKind.network.get(NETWORK_SETTINGS_KEY);
  }

  removedEvents(): Stored<RemovedEventsRecord> | undefined {
    return this.byKind.removed.get(REMOVED_EVENTS_KEY);
  }
}
