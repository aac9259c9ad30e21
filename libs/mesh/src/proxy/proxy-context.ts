import type { Clock, Log, Random, SampledTracer } from '@cloudless/base';
import type { EndpointDialler } from '../dial/endpoint-dialler.js';
import type { AccessLog } from '../metrics/access-log.js';
import type { NetworkView } from '../model/network-model.js';
import type { AccessRecord, LocalClient, ProxyLimits } from '../ports.js';
import type { ConnectionTable } from '../service/connection-table.js';
import type { EndedReplicas } from '../service/ended-replicas.js';
import type { EndpointTarget, ServicePort } from '../service/service-port.js';
import type { ServiceTable } from '../service/service-table.js';
import type { WorkloadPlaces } from './workload-places.js';

/** State and ports that the parts of a proxy share. */
export interface ProxyContext {
  readonly nodeId: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly limits: ProxyLimits;
  readonly view: NetworkView;
  readonly services: ServiceTable;
  readonly dialler: EndpointDialler;
  readonly connections: ConnectionTable;
  readonly ended: EndedReplicas;
  readonly access: AccessLog;
  readonly tracer: SampledTracer;
  /** Trust domain of the cluster; undefined without certificates. */
  readonly trustDomain: () => string | undefined;
  readonly places: WorkloadPlaces;
  readonly identifyClient: ((address: string) => LocalClient | undefined) | undefined;
}

/**
 * Returns why a target that was chosen earlier is not the endpoint any more; undefined while it is.
 * Its port may belong to another replica by then.
 */
export function explainStale(
  { view, ended }: Pick<ProxyContext, 'view' | 'ended'>,
  { endpoint: { id, nodeId, replicaId }, portName, ip, port }: EndpointTarget,
): string | undefined {
  const now = view.endpoints.get(id);
  if (now === undefined) return 'the endpoint is gone';
  if (ended.has(now)) return 'the replica has ended';
  const address = now.ports.find(({ name }) => name === portName);
  const isSame = now.nodeId === nodeId && now.replicaId === replicaId;
  if (isSame && address?.ip === ip && address.port === port) return undefined;
  return 'the endpoint has another address by now';
}

/** SPIFFE ID of a client of this node. Without certificates: the same path without a trust domain. */
export function identifyClient(context: ProxyContext, address: string): string {
  const client = context.identifyClient?.(address);
  return client === undefined
    ? toSpiffeId(context, 'node', context.nodeId)
    : toSpiffeId(context, 'workload', `${client.namespace}.${client.workload}`);
}

/** SPIFFE ID of the workload of an endpoint; empty outside the cluster. */
export function identifyEndpoint(
  context: ProxyContext,
  { endpoint }: Pick<EndpointTarget, 'endpoint'>,
): string {
  if (endpoint.workload === '') return '';
  return toSpiffeId(context, 'workload', `${endpoint.namespace}.${endpoint.workload}`);
}

/** SPIFFE ID of a node. */
export function toSpiffeId(
  context: Pick<ProxyContext, 'trustDomain'>,
  kind: 'node' | 'workload',
  id: string,
): string {
  return `spiffe://${context.trustDomain() ?? ''}/${kind}/${id}`;
}

/** Fields that the caller of {@link logAccess} gives; the function computes the others. */
interface Access extends Omit<AccessRecord, 'startedAtMs' | 'durationMs' | 'service' | 'port'> {
  readonly startMs: number;
}

/** Writes the access record of a connection when it is sampled. */
export function logAccess(
  context: ProxyContext,
  port: Pick<ServicePort, 'serviceKey' | 'name'>,
  result: string,
  describe: () => Access,
): void {
  const nowMs = context.clock.now();
  if (!context.access.isSampled(result, nowMs)) return;
  const { startMs, ...rest } = describe();
  const durationMs = Math.round(nowMs - startMs);
  context.access.write({
    startedAtMs: Math.round(context.clock.wallTime() - durationMs),
    durationMs,
    service: port.serviceKey,
    port: port.name,
    ...rest,
  });
}
