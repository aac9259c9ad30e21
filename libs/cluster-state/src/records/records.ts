import type { DescMessage, Message, MessageShape } from '@bufbuild/protobuf';
import { EventSchema } from '@cloudless/api';
import {
  AccessTokenRecordSchema,
  CertificateAuthorityRecordSchema,
  ClusterRecordSchema,
  ConfigRecordSchema,
  ConfigValueRecordSchema,
  ControlRecordSchema,
  CoordinatorRecordSchema,
  CredentialRecordSchema,
  EndpointRecordSchema,
  EvidenceRecordSchema,
  FilesGuardRecordSchema,
  FilesUseRecordSchema,
  JoinTokenRecordSchema,
  LeaderLeaseRecordSchema,
  LeaderRecordSchema,
  MasterKeyRecordSchema,
  NetworkSettingsRecordSchema,
  NodeBanRecordSchema,
  NodePortRecordSchema,
  NodeRecordSchema,
  PlanRecordSchema,
  PolicyGuardRecordSchema,
  PolicyRecordSchema,
  RemovedEventsRecordSchema,
  ReplicaRecordSchema,
  RequestRecordSchema,
  RouteGuardRecordSchema,
  RouteRecordSchema,
  SecretRecordSchema,
  SecretValueRecordSchema,
  ServiceAddressRecordSchema,
  ServiceRecordSchema,
  UserRecordSchema,
  VersionRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  createMessageCodec,
  type EncodedMessage,
  type MessageCodec,
} from '../codec/message-codec.js';
import { createEmptyReplica, listReplicaValues } from './replicas.js';

/** The kinds of records with their schemas. The key of a record is `/<kind>/<id>`. */
export const recordSchemas = {
  /** Identity of the cluster; id `cluster`. */
  meta: ClusterRecordSchema,
  /** The leader; id `leader`. */
  leader: LeaderRecordSchema,
  /** Exists while a leader renews its lease; id `leader`. */
  leaderlease: LeaderLeaseRecordSchema,
  /** A running coordinator; id: id of the coordinator. */
  coordinator: CoordinatorRecordSchema,
  /** id: uid. */
  workload: WorkloadRecordSchema,
  /** Name index; id: `<namespace>/<name>`. Contains only the uid of the workload. */
  name: WorkloadRecordSchema,
  /** id: `<uid>/<version>`. */
  version: VersionRecordSchema,
  /** id: uid. */
  control: ControlRecordSchema,
  /** The readiness guard; id: uid. Changes whenever a replica of the workload stops being ready. */
  evidence: EvidenceRecordSchema,
  /** id: `<uid>/<sequence>`, both padded so that keys sort. */
  replica: ReplicaRecordSchema,
  /** id: node id. */
  node: NodeRecordSchema,
  /** id: event id. */
  event: EventSchema,
  /** id: the caller's request id. */
  request: RequestRecordSchema,
  /** id: plan id. */
  plan: PlanRecordSchema,
  /** The newest removed event of each category; id `events`. */
  removed: RemovedEventsRecordSchema,
  /** The certificate authority without its keys; id `ca`. */
  ca: CertificateAuthorityRecordSchema,
  /** id: id of the join token. */
  jointoken: JoinTokenRecordSchema,
  /** id: name of the user. */
  user: UserRecordSchema,
  /** Credential of a user; id: id of the credential. */
  credential: CredentialRecordSchema,
  /** id: node id. */
  ban: NodeBanRecordSchema,
  /** Settings of the network; id `settings`. */
  network: NetworkSettingsRecordSchema,
  /** A network service; id: `<namespace>/<name>`. */
  service: ServiceRecordSchema,
  /** A taken virtual address; id: the address. */
  serviceip: ServiceAddressRecordSchema,
  /**
   * A taken port: of all nodes, id `<protocol>/<port>`, or of an external address, id
   * `<protocol>/<address>/<port>`.
   */
  nodeport: NodePortRecordSchema,
  /** An endpoint outside the cluster; id: `<namespace>/<service>/<endpoint id>`. */
  endpoint: EndpointRecordSchema,
  /** An HTTP route; id: `<namespace>/<name>`. */
  route: RouteRecordSchema,
  /** The guard of hosts and paths of all routes; id `routes`. */
  routeguard: RouteGuardRecordSchema,
  /** A policy; id: its name. */
  policy: PolicyRecordSchema,
  /** The guard of all policies; id `policies`. */
  policyguard: PolicyGuardRecordSchema,
  /** A config without its values; id: `<namespace>/<name>`. */
  config: ConfigRecordSchema,
  /** The values of a version of a config; id: `<uid>/<version>`. */
  configvalue: ConfigValueRecordSchema,
  /** The guard of the secrets and configs of a namespace; id: the namespace. */
  filesguard: FilesGuardRecordSchema,
  /** The guard of the uses of secrets and configs of a namespace; id: the namespace. */
  filesuse: FilesUseRecordSchema,
  /** A secret without its values; id: `<namespace>/<name>`. */
  secret: SecretRecordSchema,
  /** The encrypted values of a version of a secret; id: `<uid>/<version>`. */
  secretvalue: SecretValueRecordSchema,
  /** An access token of a secret; id: id of the token. */
  accesstoken: AccessTokenRecordSchema,
  /** A key that encrypts secrets, itself encrypted; id: id of the key. */
  masterkey: MasterKeyRecordSchema,
} as const satisfies Record<string, DescMessage>;

export type RecordKind = keyof typeof recordSchemas;
export const RECORD_KINDS = Object.keys(recordSchemas) as readonly RecordKind[];
export type RecordOf<Kind extends RecordKind> = MessageShape<(typeof recordSchemas)[Kind]>;

/**
 * Kinds that views do not hold, because their records are large and rarely read. Read them with
 * `ClusterState.readRecord`.
 */
const UNVIEWED_KINDS: ReadonlySet<RecordKind> = new Set<RecordKind>(['configvalue', 'secretvalue']);

/** Prefix of all keys of the coordinator. */
export const KEY_PREFIX = '/';

/** The store key of a record. */
export function toKey(kind: RecordKind, id: string): string {
  return `${KEY_PREFIX}${kind}/${id}`;
}

/** The kind and id of a key; undefined for a key of an unknown kind. */
export function parseKey(
  key: string,
): { readonly kind: RecordKind; readonly id: string } | undefined {
  const end = key.indexOf('/', 1);
  if (end < 0) return undefined;
  const kind = key.slice(1, end);
  return Object.hasOwn(recordSchemas, kind)
    ? { kind: kind as RecordKind, id: key.slice(end + 1) }
    : undefined;
}

/** As {@link parseKey}; also undefined for a kind that views do not hold. */
export function parseViewKey(key: string): ReturnType<typeof parseKey> {
  const parsed = parseKey(key);
  return parsed === undefined || !isViewed(parsed.kind) ? undefined : parsed;
}

/** Returns true when views hold the records of a kind. */
export function isViewed(kind: RecordKind): boolean {
  return !UNVIEWED_KINDS.has(kind);
}

/** Hand-written functions for replicas, the most frequent records. */
const REPLICA_ACCESS = {
  createEmpty: createEmptyReplica,
  listValues: listReplicaValues as (message: Message, values: unknown[]) => void,
};

const codecs = Object.fromEntries(
  RECORD_KINDS.map((kind) => [
    kind,
    createMessageCodec(
      recordSchemas[kind] as DescMessage,
      kind === 'replica' ? REPLICA_ACCESS : {},
    ),
  ]),
) as Readonly<Record<RecordKind, MessageCodec<DescMessage>>>;

/** @throws Error for a record with a value that its field cannot have. */
export function encodeRecord<Kind extends RecordKind>(
  kind: Kind,
  record: RecordOf<Kind>,
): EncodedMessage {
  return codecs[kind].encode(record);
}

/** @throws kind `internal` naming the key, when the bytes are not a record of its kind. */
export function decodeRecord<Kind extends RecordKind>(
  kind: Kind,
  id: string,
  bytes: Uint8Array,
): RecordOf<Kind> {
  try {
    return codecs[kind].decode(bytes) as unknown as RecordOf<Kind>;
  } catch (reason) {
    throw new CloudlessError('internal', `the record at ${toKey(kind, id)} cannot be read`, {
      cause: reason,
    });
  }
}

const MAX_SAFE = BigInt(Number.MAX_SAFE_INTEGER);
/** Digits of a number in a key: with leading zeros, keys sort like their numbers. */
const NUMBER_WIDTH = 10;
const ZEROS = Array.from({ length: NUMBER_WIDTH + 1 }, (_, count) => '0'.repeat(count));
const padNumber = (value: number | bigint): string => {
  // The text of a number is often in a cache of V8, that of a bigint never.
  const digits = String(
    typeof value === 'bigint' && value >= 0n && value < MAX_SAFE ? Number(value) : value,
  );
  return (ZEROS[NUMBER_WIDTH - digits.length] ?? '') + digits;
};

export const toVersionKeyId = (uid: string, version: number): string =>
  `${uid}/${padNumber(version)}`;
/** The key of a secret. */
export const toSecretKeyId = (namespace: string, name: string): string => `${namespace}/${name}`;
export const toReplicaKeyId = (uid: string, sequence: bigint): string =>
  `${uid}/${padNumber(sequence)}`;
export const toNameKeyId = (namespace: string, name: string): string => `${namespace}/${name}`;
export const CLUSTER_ID_KEY = 'cluster';
export const LEADER_KEY = 'leader';
export const REMOVED_EVENTS_KEY = 'events';
export const CERTIFICATE_AUTHORITY_KEY = 'ca';
export const NETWORK_SETTINGS_KEY = 'settings';
/** The key of a service, and the first part of the ids of its endpoints. */
export const toServiceKeyId = (namespace: string, name: string): string => `${namespace}/${name}`;
/** The key of a route. */
export const toRouteKeyId = (namespace: string, name: string): string => `${namespace}/${name}`;
export const ROUTE_GUARD_KEY = 'routes';
export const POLICY_GUARD_KEY = 'policies';
/** The key of a config. */
export const toConfigKeyId = (namespace: string, name: string): string => `${namespace}/${name}`;
/** The key of the values of a version of a config or secret. */
export const toValueKeyId = toVersionKeyId;
/** Builds an event id. Ids sort by epoch, then by count within the epoch. */
export const toEventId = (epoch: bigint, count: number): string =>
  `${padNumber(epoch)}-${padNumber(count)}`;

/** Version of the key layout. `openClusterState` refuses a store with another version. */
export const SCHEMA_VERSION = 1;
