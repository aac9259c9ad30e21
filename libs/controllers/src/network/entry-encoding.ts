import { toBinary } from '@bufbuild/protobuf';
import { create } from '@bufbuild/protobuf';
import {
  MessageWriter,
  NetworkNodeEntrySchema,
  NodeNetworkSchema,
  NetworkRouteEntrySchema,
  NetworkServiceEntrySchema,
  NetworkSettingsSchema,
} from '@cloudless/api';
import type {
  NetworkSettingsRecord,
  NodeRecord,
  ReplicaRecord,
  RouteRecord,
  SecretRecord,
  ServiceRecord,
} from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';
import { toEffectiveNode, type EndpointPort } from '@cloudless/cluster-state';

/** Input of {@link encodeReplicaEndpoint}: facts about a replica, its service and its node. */
export interface ReplicaEndpoint {
  /** `<namespace>/<service>/<replica id>`. */
  readonly id: string;
  readonly service: Pick<ServiceRecord, 'namespace' | 'name'>;
  readonly workload: string;
  readonly replica: Pick<ReplicaRecord, 'id' | 'nodeId' | 'slot' | 'version'>;
  readonly ports: readonly EndpointPort[];
  readonly location: NodeLocation;
  readonly weight: number;
  readonly ready: boolean;
  /** True when the replica is about to stop. */
  readonly leaving: boolean;
}

/** Zone and region of a node. */
export interface NodeLocation {
  readonly zone: string;
  readonly region: string;
}

/** Input of {@link encodeExternalEndpoint}: an address outside the cluster. */
export interface ExternalEndpoint {
  /** `<namespace>/<service>/<id>`. */
  readonly id: string;
  readonly service: Pick<ServiceRecord, 'namespace' | 'name'>;
  readonly port: EndpointPort;
  readonly location: NodeLocation;
  readonly weight: number;
  readonly ready: boolean;
  /** Empty: no node checks the endpoint. */
  readonly checkedByNodeId: string;
}

/** Numbers of the fields of NetworkEndpointEntry and NetworkEndpointPort. */
const ENTRY = {
  ...{ id: 1, namespace: 2, service: 3, nodeId: 4, replicaId: 5, workload: 6, slot: 7, version: 8 },
  ...{ ports: 9, weight: 10, zone: 11, region: 12, ready: 13, checkedByNodeId: 14, leaving: 15 },
} as const;
const PORT = { name: 1, ip: 2, port: 3 } as const;

const writer = new MessageWriter();

/** Encodes the NetworkEndpointEntry of a replica. */
export function encodeReplicaEndpoint(endpoint: ReplicaEndpoint): Uint8Array {
  const { id, service, workload, replica, ports, location, weight, ready, leaving } = endpoint;
  writer.string(ENTRY.id, id);
  writer.string(ENTRY.namespace, service.namespace);
  writer.string(ENTRY.service, service.name);
  writer.string(ENTRY.nodeId, replica.nodeId);
  writer.string(ENTRY.replicaId, replica.id);
  writer.string(ENTRY.workload, workload);
  writer.int32(ENTRY.slot, replica.slot);
  writer.int32(ENTRY.version, replica.version);
  for (const port of ports) writePort(port);
  writer.int32(ENTRY.weight, weight);
  writeLocation(location);
  writer.bool(ENTRY.ready, ready);
  writer.bool(ENTRY.leaving, leaving);
  return writer.finish();
}

/** Encodes the NetworkEndpointEntry of an address outside the cluster. */
export function encodeExternalEndpoint(endpoint: ExternalEndpoint): Uint8Array {
  writer.string(ENTRY.id, endpoint.id);
  writer.string(ENTRY.namespace, endpoint.service.namespace);
  writer.string(ENTRY.service, endpoint.service.name);
  writePort(endpoint.port);
  writer.int32(ENTRY.weight, endpoint.weight);
  writeLocation(endpoint.location);
  writer.bool(ENTRY.ready, endpoint.ready);
  writer.string(ENTRY.checkedByNodeId, endpoint.checkedByNodeId);
  return writer.finish();
}

/** Encodes the NetworkServiceEntry of a service. */
export function encodeService(record: ServiceRecord): Uint8Array {
  const { namespace, name, uid, clusterIp, spec, loadBalancer } = record;
  const entry = create(NetworkServiceEntrySchema, {
    ...{ namespace, name, uid, clusterIp },
    ...definedFields({ spec, loadBalancer }),
  });
  return toBinary(NetworkServiceEntrySchema, entry);
}

/**
 * Encodes the NetworkRouteEntry of an HTTP route.
 * @param nodeIds - Nodes with the labels of its node selector. Empty without a selector.
 * @param secret - The secret that its `tls` names; undefined: none is named, or none of that name
 *   exists. Only the uid and the number of the newest version are encoded.
 */
export function encodeRoute(
  { namespace, name, spec }: RouteRecord,
  nodeIds: readonly string[],
  secret: Pick<SecretRecord, 'uid' | 'version'> | undefined,
): Uint8Array {
  const certificate = secret && { secretUid: secret.uid, version: secret.version };
  const entry = create(NetworkRouteEntrySchema, {
    ...{ namespace, name, nodeIds: [...nodeIds] },
    ...definedFields({ spec, certificate }),
  });
  return toBinary(NetworkRouteEntrySchema, entry);
}

/**
 * Encodes the NetworkNodeEntry of a node.
 * @param alive - True while the lease of the node has not ended.
 */
export function encodeNode(record: NodeRecord, alive: boolean): Uint8Array {
  const { zone, region } = toEffectiveNode(record);
  const { current, previous } = record.identity ?? {};
  const { network } = record.hello ?? {};
  // Without the addresses of the machine, which other nodes do not need.
  const { address = '', hostId = '' } = network ?? {};
  const entry = create(NetworkNodeEntrySchema, {
    ...{ id: record.id, zone, region, alive },
    acceptedSerials: [current, previous].flatMap((certificate) => certificate?.serial ?? []),
    ...(network && { network: create(NodeNetworkSchema, { address, hostId }) }),
    ...definedFields({ newestNotAfter: current?.notAfter }),
  });
  return toBinary(NetworkNodeEntrySchema, entry);
}

/**
 * Encodes the settings of the network.
 * @param dnsAddress - Address at which nodes answer DNS requests.
 */
export function encodeSettings(record: NetworkSettingsRecord, dnsAddress: string): Uint8Array {
  const { serviceCidr, clusterDomain } = record;
  const settings = create(NetworkSettingsSchema, { serviceCidr, clusterDomain, dnsAddress });
  return toBinary(NetworkSettingsSchema, settings);
}

function writePort({ name, ip, port }: EndpointPort): void {
  const start = writer.begin(ENTRY.ports);
  writer.string(PORT.name, name);
  writer.string(PORT.ip, ip);
  writer.int32(PORT.port, port);
  writer.end(start);
}

function writeLocation({ zone, region }: NodeLocation): void {
  writer.string(ENTRY.zone, zone);
  writer.string(ENTRY.region, region);
}
