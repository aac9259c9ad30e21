import { Port_Protocol as Protocol, type Port, type WorkloadSpec } from './gen.js';

/** A port of the node that a replica reserves. */
export interface HostPort {
  readonly protocol: 'tcp' | 'udp';
  readonly number: number;
}

/**
 * Returns the ports of the node that a replica reserves: ports with a `host_port`; with
 * `host_network` all declared ports, because they are ports of the node. A port that is declared
 * twice appears twice.
 */
export function hostPortsOf({
  ports,
  network,
}: Pick<WorkloadSpec, 'ports' | 'network'>): readonly HostPort[] {
  return ports.flatMap((port) => {
    const number = numberOn(port, network?.hostNetwork === true);
    return number === 0
      ? []
      : [{ protocol: port.protocol === Protocol.UDP ? 'udp' : 'tcp', number }];
  });
}

function numberOn({ hostPort, containerPort }: Port, sharesNetwork: boolean): number {
  return hostPort !== 0 || !sharesNetwork ? hostPort : containerPort;
}
