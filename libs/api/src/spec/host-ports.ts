import { Port_Protocol as Protocol, type Port, type WorkloadSpec } from '../gen.js';

/** A port of the node that a replica reserves. */
export interface ReplicaHostPort {
  readonly protocol: 'tcp' | 'udp';
  readonly number: number;
}

/**
 * Returns the ports of the node that a replica reserves: each `host_port`, and with `host_network`
 * also every declared container port, because the replica then uses the ports of the node. A port
 * that is declared twice appears twice.
 */
export function listHostPorts({
  ports,
  network,
}: Pick<WorkloadSpec, 'ports' | 'network'>): readonly ReplicaHostPort[] {
  return ports.flatMap((port) => {
    const number = resolveNodePort(port, network?.hostNetwork === true);
    return number === 0
      ? []
      : [{ protocol: port.protocol === Protocol.UDP ? 'udp' : 'tcp', number }];
  });
}

/** Returns the port of the node for a declared port; 0: none. */
function resolveNodePort({ hostPort, containerPort }: Port, sharesNetwork: boolean): number {
  return hostPort !== 0 || !sharesNetwork ? hostPort : containerPort;
}
