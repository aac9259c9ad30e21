import type { TcpStream } from '../serving/tcp-dial.js';

/** A service that processes may reach at a virtual address. */
export interface ReachableService {
  readonly name: string;
  /** The virtual address. */
  readonly address: string;
  /** Ports at the address, in the order of the service. Names may be empty. */
  readonly ports: readonly { readonly name: string; readonly port: number }[];
}

/** Names, addresses and DNS server with which a new container reaches services. */
export interface ServiceAccess {
  /** Address of the DNS server of the node and domain of the cluster. Absent: the node has none. */
  readonly dns?: { readonly server: string; readonly domain: string };
  /** Services of the namespace of the container. */
  readonly services: readonly ReachableService[];
}

/** A virtual address of a service, and the ports of the service there. */
export interface ServiceAddress {
  readonly address: string;
  readonly ports: readonly { readonly protocol: 'tcp' | 'udp'; readonly port: number }[];
}

/** The network proxy of the node, as replicas and coordinators use it. */
export interface NodeNetworkAccess {
  /** Returns what the proxy cannot do at the moment, as text for people; empty: nothing. */
  findProblem(): string;
  /**
   * Returns what a new container of a namespace needs to reach services; undefined while the proxy
   * does not answer. Resolves within a few seconds and never rejects.
   */
  findServices(namespace: string): Promise<ServiceAccess | undefined>;
  /**
   * Returns the virtual addresses of services; undefined while the proxy does not answer. Resolves
   * within a few seconds and never rejects.
   * @param patterns - As in `EgressDestination.service`: `<namespace>/<name>`, `<namespace>/*`, `*`.
   */
  findServiceAddresses(patterns: readonly string[]): Promise<readonly ServiceAddress[] | undefined>;
  /**
   * Opens a connection to the proxy for the bytes that a coordinator relays.
   * @param fromNodeId - Id of the node that connects.
   * @throws kind `unavailable` while the proxy does not answer.
   */
  openRelay(fromNodeId: string): Promise<TcpStream>;
}
