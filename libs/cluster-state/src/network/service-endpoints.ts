import { ReplicaStatus_Phase as Phase, type Port, type ServicePort } from '@cloudless/api';
import type { ReplicaRecord, ServiceRecord, WorkloadRecord } from '@cloudless/api/store';
import { isLive } from '../records/replicas.js';

/** One address of an endpoint: it serves the port `name` of the service. */
export interface EndpointPort {
  readonly name: string;
  /** IP address, as seen from the node of the replica. */
  readonly ip: string;
  readonly port: number;
}

/** Returns the addresses of a replica for the ports of one service, in the order of these ports. */
export type EndpointPortIndex = (
  replica: Pick<ReplicaRecord, 'endpoints'>,
) => readonly EndpointPort[];

/** Returns true when the replicas of a workload are endpoints of a service. */
export function selectsWorkload(
  { namespace, spec }: Pick<ServiceRecord, 'namespace' | 'spec'>,
  workload: Pick<WorkloadRecord, 'namespace' | 'name' | 'spec'>,
): boolean {
  if (spec === undefined || namespace !== workload.namespace) return false;
  if (spec.workload !== '') return spec.workload === workload.name;
  const terms = Object.entries(spec.selector);
  const labels = workload.spec?.labels ?? {};
  return terms.length > 0 && terms.every(([key, value]) => labels[key] === value);
}

/**
 * Returns the declared port of a workload that a port of a service leads to. Only ports of the same
 * protocol match. `target_port` is a port number or the name of a port; without it, the port with
 * the same name, else the one with the same number, else the only one.
 * @returns Undefined when no port matches.
 */
export function matchTargetPort(
  { name, port, targetPort, protocol }: ServicePort,
  declared: readonly Port[],
): Port | undefined {
  const candidates = declared.filter((candidate) => candidate.protocol === protocol);
  const byName = (wanted: string): Port | undefined =>
    candidates.find((candidate) => candidate.name === wanted);
  const byNumber = (wanted: number): Port | undefined =>
    candidates.find(({ containerPort }) => containerPort === wanted);
  if (/^\d+$/.test(targetPort)) return byNumber(Number(targetPort));
  if (targetPort !== '') return byName(targetPort);
  return byName(name) ?? byNumber(port) ?? (candidates.length === 1 ? candidates[0] : undefined);
}

/**
 * Resolves the ports of a service for the replicas of one version of a workload.
 * @param declared - The ports in the template of the version.
 */
export function createEndpointPortIndex(
  { spec }: Pick<ServiceRecord, 'spec'>,
  declared: readonly Port[],
): EndpointPortIndex {
  const targets = (spec?.ports ?? []).flatMap((port) => {
    const target = matchTargetPort(port, declared);
    return target === undefined ? [] : [{ name: port.name, declared: target.name }];
  });
  return ({ endpoints }) =>
    targets.flatMap((target) => {
      const endpoint = endpoints.find(({ portName }) => portName === target.declared);
      return endpoint === undefined
        ? []
        : [{ name: target.name, ip: endpoint.ip, port: endpoint.port }];
    });
}

/**
 * Returns true for a replica that is an endpoint, ready or not: its node may still hold connections
 * to it.
 */
export function hasEndpoint(replica: Pick<ReplicaRecord, 'nodeId' | 'phase'>): boolean {
  return replica.nodeId !== '' && replica.phase >= Phase.STARTING && isLive(replica);
}

/**
 * Returns true for a replica that receives new connections while its node is alive, under a rollout
 * strategy other than BLUE_GREEN: ready, not leaving, and not lost.
 */
export function isReadyEndpoint(replica: ReplicaRecord): boolean {
  return replica.ready && replica.desiredRunning && !replica.lost && isLive(replica);
}
