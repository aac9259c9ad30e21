import { Port_Protocol as Protocol, type Port, type WorkloadSpec } from './gen.js';

/** A port of the node that a replica takes for itself. */
export interface HostPort {
  readonly protocol: 'tcp' | 'udp';
  readonly number: number;
}

/**
 * The ports of its node that a replica of the workload takes: those with a `host_port`; with
 * `host_network` all that are declared, as its own are the node's then. A port that is named twice
 * is there twice.
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
