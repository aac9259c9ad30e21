import { create } from '@bufbuild/protobuf';
import {
  EndpointHealthSchema,
  EndpointHealth_Status as Health,
  ServiceEndpointSchema,
  type ServiceEndpoint,
} from '@cloudless/api';
import type {
  EndpointRecord,
  ReplicaRecord,
  ServiceRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';
import {
  createEndpointPortIndex,
  createServingFilter,
  hasEndpoint,
  isReadyEndpoint,
  toEffectiveNode,
  toServiceKeyId,
  type ClusterView,
  type EndpointPort,
  type EndpointPortIndex,
} from '@cloudless/cluster-state';
import type { WorkloadPresenterPort } from '../ports.js';

/** A replica that a service leads to. */
export interface ServiceReplica {
  readonly replica: ReplicaRecord;
  /** True when new connections may go to the replica. */
  readonly isReady: boolean;
  /** Addresses for the ports of the service. Empty: the replica is no endpoint. */
  readonly ports: readonly EndpointPort[];
}

/** Lists the replicas of a workload that are or may become endpoints, by their ids. */
export function listServiceReplicas(
  view: ClusterView,
  service: ServiceRecord,
  workload: WorkloadRecord,
): readonly ServiceReplica[] {
  const isServing = createServingFilter(view, workload.uid);
  const indexes = new Map<number, EndpointPortIndex>();
  const toPorts = (replica: ReplicaRecord): readonly EndpointPort[] => {
    const index =
      indexes.get(replica.version) ??
      createEndpointPortIndex(
        service,
        view.version(workload.uid, replica.version)?.template?.ports ?? [],
      );
    indexes.set(replica.version, index);
    return index(replica);
  };
  return [...view.replicasOf(workload.uid)]
    .map(({ value }) => value)
    .filter((replica) => hasEndpoint(replica) && !replica.lost)
    .map((replica) => ({
      replica,
      isReady: isReadyEndpoint(replica) && isServing(replica),
      ports: toPorts(replica),
    }))
    .sort((a, b) => (a.replica.id < b.replica.id ? -1 : 1));
}

/**
 * Returns true for an endpoint outside the cluster that receives new connections. An endpoint that
 * was never checked counts as healthy only when nothing checks it.
 */
export function isHealthyEndpoint(
  { endpoint }: EndpointRecord,
  { loadBalancer }: ServiceRecord,
): boolean {
  const status = endpoint?.health?.status ?? Health.UNKNOWN;
  if (status === Health.UNKNOWN) return loadBalancer?.healthCheck === undefined;
  return status === Health.HEALTHY;
}

/**
 * Lists all endpoints of a service, one for each address and port, by id.
 * @param presenter - Describes the weights of replicas in the same view.
 */
export function listServiceEndpoints(
  view: ClusterView,
  service: ServiceRecord,
  presenter: Pick<WorkloadPresenterPort, 'describeWeights'>,
): readonly ServiceEndpoint[] {
  const ofReplicas = [...view.workloadsSelectedBy(service)].flatMap(({ value }) =>
    listWorkloadEndpoints(view, service, value, presenter.describeWeights(value)),
  );
  const key = toServiceKeyId(service.namespace, service.name);
  const external = [...view.externalEndpointsOf(key)].flatMap(({ value }) => value.endpoint ?? []);
  return [...ofReplicas, ...external].sort((a, b) => (a.id < b.id ? -1 : 1));
}

function listWorkloadEndpoints(
  view: ClusterView,
  service: ServiceRecord,
  workload: WorkloadRecord,
  getWeight: (replica: ReplicaRecord) => number,
): readonly ServiceEndpoint[] {
  return listServiceReplicas(view, service, workload).flatMap(({ replica, isReady, ports }) => {
    const node = view.node(replica.nodeId)?.value;
    const { zone, region } = node === undefined ? { zone: '', region: '' } : toEffectiveNode(node);
    return ports.map(({ name, ip, port }) =>
      create(ServiceEndpointSchema, {
        id: `${replica.id}/${name}`,
        namespace: service.namespace,
        service: service.name,
        portName: name,
        address: ip,
        port,
        nodeId: replica.nodeId,
        workload: workload.name,
        replicaId: replica.id,
        version: replica.version,
        health: describeReplicaHealth(replica, isReady),
        weight: getWeight(replica),
        ...{ zone, region },
        ...definedFields({ registeredAt: replica.readySince }),
      }),
    );
  });
}

function describeReplicaHealth(replica: ReplicaRecord, isReady: boolean) {
  if (isReady) return create(EndpointHealthSchema, { status: Health.HEALTHY });
  if (!replica.desiredRunning) {
    const reason = 'the replica is about to stop';
    return create(EndpointHealthSchema, { status: Health.DRAINING, reason });
  }
  const reason = replica.ready ? 'its version is not the active one' : 'the replica is not ready';
  return create(EndpointHealthSchema, { status: Health.UNHEALTHY, reason });
}
