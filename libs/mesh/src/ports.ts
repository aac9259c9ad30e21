import type { Socket as UdpSocket } from 'node:dgram';
import type { Server } from 'node:net';
import type { Duplex } from 'node:stream';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { NodeNetworkClient, UpdateEndpointHealthRequestSchema } from '@cloudless/api';
import type { Clock, Log, Meter, Random, SampledTracer } from '@cloudless/base';
import type { ReservableListener } from './entry/plan-listeners.js';
import type { NetworkChanges, NetworkView } from './model/network-model.js';
import type { EndpointResponse } from './traffic/traffic-counts.js';

/** Key and certificates of the node. Secret because of the key. */
export interface ProxyIdentity {
  /** Private key of the node in PEM. */
  readonly keyPem: string;
  /** Certificate of the node, then those of its issuers, in PEM. */
  readonly chainPem: string;
  /** The root certificates of the cluster in PEM. */
  readonly bundlePem: string;
  readonly trustDomain: string;
}

/** The node whose traffic a proxy carries. */
export interface ProxyNode {
  readonly nodeId: string;
  /** Zone of the node; empty: none. */
  readonly zone: string;
  /** Region of the node; empty: none. */
  readonly region: string;
  /** Equal for all agents of one network namespace. */
  readonly hostId: string;
}

/** Source of the newest identity of the node, which changes with each renewal. */
export interface IdentitySource {
  /** Undefined while the node has no certificate: nothing crosses machines then. */
  current(): ProxyIdentity | undefined;
  /** Runs `listener` after each change. */
  onChange(listener: () => void): void;
}

/** The health of an endpoint outside the cluster as this node has checked it. */
export type HealthReport = Required<
  Omit<MessageInitShape<typeof UpdateEndpointHealthRequestSchema>, '$typeName' | '$unknown'>
>;

/** A connection to a coordinator. */
export interface CoordinatorConnection {
  readonly client: NodeNetworkClient;
  /**
   * Stores the health of an endpoint, with a time limit of its own.
   * @throws CloudlessError `denied` when another node checks the endpoint, `notFound` when the
   *   endpoint is gone, otherwise as for any call.
   */
  reportHealth(report: HealthReport): Promise<void>;
  close(): void;
}

/**
 * Opens the listening sockets of a proxy. The process implements the interface, so that an upgraded
 * proxy inherits sockets of its predecessor.
 */
export interface ListeningSockets {
  /**
   * Listens at an address. The server keeps half-open connections and begins each connection paused
   * (`allowHalfOpen`, `pauseOnConnect`), and has no handler of connections yet.
   * After an upgrade, a server may get its connections from a socket of the earlier process at first,
   * with `listening` false.
   * @throws as `net.Server` with the code EADDRNOTAVAIL, EADDRINUSE or EACCES.
   */
  listenTcp(address: string, port: number): Promise<Server>;
  /** Binds a UDP socket that has no handler of messages yet. */
  bindUdp(address: string, port: number): Promise<UdpSocket>;
}

/** Makes single checks of addresses. Each check uses a new connection and ends with its signal. */
export interface CheckClients {
  /** Connects and disconnects. Rejects with the reason when nothing accepts the connection. */
  tcp(target: CheckTarget, signal: AbortSignal): Promise<void>;
  /** Sends a GET request, follows no redirect, and resolves with the status. */
  http(
    target: CheckTarget & {
      readonly path: string;
      readonly headers: Readonly<Record<string, string>>;
    },
    signal: AbortSignal,
  ): Promise<number>;
  /** Calls `grpc.health.v1.Health/Check` without TLS. Resolves with the name of the status. */
  grpc(target: CheckTarget & { readonly service: string }, signal: AbortSignal): Promise<string>;
}

/** An address that is checked. */
export interface CheckTarget {
  readonly ip: string;
  readonly port: number;
}

/** A replica that runs behind a client address of this node. */
export interface LocalClient {
  readonly namespace: string;
  readonly workload: string;
}

/** Bounds of a proxy. */
export interface ProxyLimits {
  /**
   * TCP connections of clients that the proxy holds at a time, including those that wait for an
   * endpoint, of which one client address may have a tenth. Default: 50000.
   */
  readonly maxConnections: number;
  /** Attempts to connect to different endpoints for one connection. Default: 5. */
  readonly maxAttempts: number;
  /** Incomplete TLS handshakes at the mesh address. Default: 256. */
  readonly maxHandshakes: number;
  /** Time for one TLS handshake, milliseconds. Default: 5000. */
  readonly handshakeTimeoutMs: number;
  /** Connections that one node may hold at the mesh address. Default: 8. */
  readonly maxLinksPerPeer: number;
  /** Streams that one connection between two nodes may hold. Default: 16384. */
  readonly maxStreamsPerLink: number;
  /** Connections that the proxy keeps to another node. Default: 2. */
  readonly linksPerPeer: number;
  /**
   * Sessions of one UDP port of a service. A further client replaces a session without an answer,
   * otherwise the session that was used least recently. Default: 10000.
   */
  readonly maxUdpSessions: number;
  /**
   * Time after the last datagram for which a UDP session is kept, milliseconds. Default: 180000.
   */
  readonly udpIdleMs: number;
}

/** The bounds of a proxy that sets none. */
export const DEFAULT_PROXY_LIMITS: ProxyLimits = {
  maxConnections: 50_000,
  maxAttempts: 5,
  maxHandshakes: 256,
  handshakeTimeoutMs: 5_000,
  maxLinksPerPeer: 8,
  maxStreamsPerLink: 16_384,
  linksPerPeer: 2,
  maxUdpSessions: 10_000,
  udpIdleMs: 180_000,
};

/** A finished connection, or a connection that was refused. */
export interface AccessRecord {
  /** Milliseconds since the Unix epoch at which the client connected. */
  readonly startedAtMs: number;
  readonly durationMs: number;
  readonly protocol: 'tcp' | 'udp';
  /**
   * `entry`: a client of this node; `exit`: a client of another node, for a replica of this node.
   */
  readonly side: 'entry' | 'exit';
  /** `<namespace>/<name>` of the service. */
  readonly service: string;
  /** Name of the port of the service. */
  readonly port: string;
  /** Address and port of the client. */
  readonly client: string;
  /** SPIFFE ID of the workload of the client, or of its node when the workload is not known. */
  readonly clientIdentity: string;
  /** Id of the endpoint; empty when none was reached. */
  readonly endpoint: string;
  /** SPIFFE ID of the workload of the endpoint; empty outside the cluster. */
  readonly endpointIdentity: string;
  /** Path to the endpoint; `none` when no endpoint was reached. */
  readonly path: 'direct' | 'link' | 'relay' | 'none';
  /** Bytes from the client. */
  readonly sentBytes: number;
  /** Bytes to the client. */
  readonly receivedBytes: number;
  /** Endpoints that were tried. */
  readonly attempts: number;
  /** `closed` for a regular end; otherwise why the connection ended or was refused. */
  readonly result: string;
}

/** Arguments of {@link createNetworkProxy}. */
export interface NetworkProxyOptions extends ProxyNode {
  /**
   * Key and certificates of the node. Absent in a plaintext cluster, whose proxies reach endpoints
   * of the same `hostId` only.
   */
  readonly identity?: IdentitySource | undefined;
  /**
   * Connects to a coordinator. The proxy calls it again, with growing delays, after each failure.
   */
  readonly connect: (signal: AbortSignal) => Promise<CoordinatorConnection>;
  /** Address and port at which other proxies connect. Absent: that of `meshAddressSource`. */
  readonly meshListen?: { readonly host: string; readonly port: number } | undefined;
  /**
   * Finds the address at which other proxies connect, as far as the machine has one and the port is
   * free. Absent, and without `meshListen`: this node can only dial out.
   */
  readonly meshAddressSource?: MeshAddressSource | undefined;
  /**
   * Lists the addresses of this machine at which node ports listen. Called every second, because
   * addresses come and go; may throw. Default: none.
   */
  readonly listMachineAddresses?: (() => readonly string[]) | undefined;
  /**
   * Explains, as text for people, which other server of this machine has the TCP port of a listener:
   * the service is not served there, and the status has the text as a problem. Undefined: none.
   */
  readonly explainReserved?: ((listener: ReservableListener) => string | undefined) | undefined;
  readonly sockets: ListeningSockets;
  /** Checks endpoints outside the cluster. */
  readonly checkClients: CheckClients;
  /**
   * Makes the range of virtual addresses reachable on this machine. Rejects with the reason for
   * which the addresses are not served; called again later, because others may remove what it
   * needs.
   */
  readonly prepareRange: (cidr: string) => Promise<void>;
  /**
   * Resolves when this process holds the lock of its network namespace: the proxy listens at
   * virtual addresses and node ports only then.
   */
  readonly mayListen: (signal: AbortSignal) => Promise<void>;
  /** File that keeps the last known network over a restart of the machine. */
  readonly snapshotFile: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter: Meter;
  readonly limits?: Partial<ProxyLimits> | undefined;
  /**
   * Returns true when a client address is of this machine or a container of it, so that it may use
   * virtual addresses. Default: own addresses and the networks of containers.
   */
  readonly isLocalClient?: ((address: string) => boolean) | undefined;
  /** Returns the replica that runs behind a client address; undefined when unknown. */
  readonly identifyClient?: (address: string) => LocalClient | undefined;
  /** Receives the sampled access log. Default: lines of the log. */
  readonly onAccess?: (record: AccessRecord) => void;
  /** Share of the successful connections in the access log, 0 to 1. Default: 0.01. */
  readonly accessSample?: number;
  /** Records how TCP connections reach their endpoints. Default: nothing. */
  readonly tracer?: SampledTracer;
}

/** The address of a machine for the proxies of other nodes, which may change. */
export interface MeshAddressSource {
  /**
   * Finds address and port to listen at; undefined: other machines do not reach this one.
   * @throws with the reason, for people, when no coordinator has an address and a route now.
   */
  readonly find: () => Promise<{ readonly host: string; readonly port: number } | undefined>;
  /** Returns false once no interface of the machine has `address`. Never throws. */
  readonly has: (address: string) => boolean;
}

/** State of a proxy at the moment of the read. */
export interface NetworkProxyStatus {
  /** Revision of the newest complete update that is applied. 0n: none yet. */
  readonly revision: bigint;
  /**
   * True when everything up to a revision of the coordinator is known; false after a snapshot only.
   */
  readonly complete: boolean;
  /** True when a stream of a coordinator is open. */
  readonly connected: boolean;
  readonly services: number;
  readonly endpoints: number;
  /** TCP connections and UDP sessions that the proxy carries, also for other nodes. */
  readonly openConnections: number;
  /** Open listeners at virtual addresses, external addresses and node ports. */
  readonly listeners: number;
  /** Connections to other nodes and from other nodes. */
  readonly links: readonly LinkStatus[];
  /** Address at which other proxies connect, with the actual port. Absent: they use the relay. */
  readonly meshAddress?: { readonly address: string; readonly port: number };
  /** Failures with their causes, as texts for people. At most 100. */
  readonly problems: readonly string[];
}

/** A connection between the proxies of two nodes. */
export interface LinkStatus {
  readonly nodeId: string;
  readonly direction: 'out' | 'in';
  readonly path: 'link' | 'relay';
  /** Connections of clients that it carries. */
  readonly streams: number;
}

/** A virtual address of a service, and the ports of the service there. */
export interface ServiceAddress {
  readonly address: string;
  readonly ports: ListedService['ports'];
}

/** A service for the environment variables of processes. */
export interface ListedService {
  readonly name: string;
  /** Empty: the service has no virtual address. */
  readonly clusterIp: string;
  readonly ports: readonly {
    readonly name: string;
    readonly port: number;
    readonly protocol: 'tcp' | 'udp';
  }[];
}

/** Address at which the DNS server of a node answers. */
export interface ServedDns {
  readonly address: string;
  /** 53, unless that port is taken or forbidden. */
  readonly port: number;
  /** Domain below which services have names. */
  readonly domain: string;
}

/** A request to a service that another part of the process carries, such as an HTTP proxy. */
export interface EndpointRequest {
  readonly namespace: string;
  readonly service: string;
  /** Number of a TCP port of the service. */
  readonly port: number;
  readonly clientAddress: string;
  readonly clientPort: number;
  /** Address and port at which the client reached this node, such as "10.0.0.5:443". */
  readonly virtual: string;
  /** Ids of endpoints that were tried already. */
  readonly exclude: ReadonlySet<string>;
}

/** An endpoint for one request. */
export type EndpointChoice =
  | {
      readonly kind: 'chosen';
      readonly endpointId: string;
      /** True when a connection names its client to the endpoint, so that no other may use it. */
      readonly namesClient: boolean;
      /**
       * Opens a connection, which later requests may use, too. The connection is reset when the
       * endpoint is gone.
       * @param trace - Span of the request, in the format of the header `traceparent`.
       * @throws when the endpoint accepts no connection; the balancer learns of that.
       */
      connect(trace?: string): Promise<Duplex>;
      /** Ends the request, for the count of the balancer. Calls after the first do nothing. */
      release(): void;
    }
  /** `reason` continues a sentence that begins with the service. */
  | { readonly kind: 'refused'; readonly reason: string };

/** The network proxy of a node. */
export interface NetworkProxy {
  /**
   * Loads the snapshot, listens at the mesh address, and begins to follow the coordinator.
   * @throws when the proxy cannot listen at `meshListen`.
   */
  start(): Promise<void>;
  /** Resets all connections and stops. */
  close(): Promise<void>;
  /**
   * Stops to accept connections and streams, and resolves when all connections have ended or
   * `withinMs` milliseconds have passed. The caller closes the proxy afterwards.
   */
  drain(withinMs: number): Promise<void>;
  /**
   * Nodes whose agents share the network namespace of this proxy, as the agents themselves proved
   * at the control socket. Their endpoints are reached without TLS. The node of the proxy counts
   * always.
   */
  setLocalNodes(nodeIds: readonly string[]): void;
  /**
   * Resets connections to replicas that have ended on this node, and opens no more of them, before
   * the coordinator says so. A replica never comes back.
   */
  endReplicas(replicaIds: readonly string[]): void;
  /** Accepts the bytes of the TLS connection of another proxy, which the coordinator relays. */
  acceptRelay(fromNodeId: string, stream: Duplex): void;
  /** Chooses an endpoint of a service for one request. */
  choose(request: EndpointRequest): EndpointChoice;
  /** Counts finished HTTP requests, for the figures of their replicas. */
  readonly traffic: { addResponse(response: EndpointResponse): void };
  status(): NetworkProxyStatus;
  /** Returns the services of a namespace by name. */
  listServices(namespace: string): readonly ListedService[];
  /**
   * Returns the virtual addresses of services, sorted, each once; undefined until the proxy has
   * received all services once.
   * @param patterns - `<namespace>/<name>`, `<namespace>/*` or `*`.
   */
  listServiceAddresses(patterns: readonly string[]): readonly ServiceAddress[] | undefined;
  /** The DNS server; undefined while it does not listen. */
  dns(): ServedDns | undefined;
  /** The network as the proxy knows it. */
  readonly view: NetworkView;
  /** Runs `listener` after each change of the view. Returns a function that ends that. */
  onChange(listener: (changes: NetworkChanges) => void): () => void;
}
