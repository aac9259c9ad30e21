import { Port_Protocol, ServiceSpec_Type, type NetworkServiceEntry } from '@cloudless/api';

/** An address at which the proxy listens for one port of a service. */
export interface PlannedListener {
  readonly protocol: 'tcp' | 'udp';
  readonly address: string;
  readonly port: number;
  /** `<namespace>/<name>`. */
  readonly serviceKey: string;
  readonly portName: string;
  /**
   * `virtual`: in the range of virtual addresses. `node`: of this machine, with a node port.
   * `external`: of some machines, which need not include this machine.
   */
  readonly scope: 'virtual' | 'node' | 'external';
}

/** The part of a TCP listener by which another server of the machine may have its port. */
export type ReservableListener = Pick<PlannedListener, 'address' | 'port' | 'scope'>;

/** Returns a text that is equal for listeners that exclude each other. */
export function listenerKey({ protocol, address, port }: PlannedListener): string {
  return `${protocol} ${address}:${port}`;
}

/** Returns the external addresses of services at one TCP port. */
export function listExternalAddresses(
  services: Iterable<NetworkServiceEntry>,
  port: number,
): ReadonlySet<string> {
  const addresses = new Set<string>();
  for (const { spec } of services) {
    if (spec?.type !== ServiceSpec_Type.LOAD_BALANCER) continue;
    const hasPort = spec.ports.some(
      (each) => each.port === port && each.protocol !== Port_Protocol.UDP,
    );
    if (hasPort) for (const address of spec.externalIps) addresses.add(address);
  }
  return addresses;
}

/**
 * Returns the addresses at which a service is reached on this machine: its virtual address, node
 * ports at `nodePortAddresses`, and the external addresses of a LOAD_BALANCER service.
 */
export function planListeners(
  serviceKey: string,
  { spec, clusterIp }: NetworkServiceEntry,
  nodePortAddresses: readonly string[],
): readonly PlannedListener[] {
  const planned: PlannedListener[] = [];
  const type = spec?.type ?? ServiceSpec_Type.CLUSTER_IP;
  for (const { name: portName, port, protocol, nodePort } of spec?.ports ?? []) {
    const add = (address: string, at: number, scope: PlannedListener['scope']): void =>
      void planned.push({
        protocol: protocol === Port_Protocol.UDP ? 'udp' : 'tcp',
        ...{ address, port: at, serviceKey, portName, scope },
      });
    if (clusterIp !== '') add(clusterIp, port, 'virtual');
    if (type !== ServiceSpec_Type.CLUSTER_IP && nodePort > 0)
      for (const address of nodePortAddresses) add(address, nodePort, 'node');
    if (type === ServiceSpec_Type.LOAD_BALANCER)
      for (const address of spec?.externalIps ?? []) add(address, port, 'external');
  }
  return planned;
}
