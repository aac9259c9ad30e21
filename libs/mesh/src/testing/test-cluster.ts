import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  type NetworkEndpointEntrySchema,
  type NetworkNodeEntrySchema,
  type NetworkServiceEntrySchema,
  NetworkUpdateSchema,
  RelayNetworkResponseSchema,
  type NetworkReport,
  type NetworkUpdate,
  type NodeNetworkClient,
  type RelayNetworkRequest,
} from '@cloudless/api';
import { createSeededRandom, definedFields, type Clock } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import { TestAuthority, type TestCredential } from '@cloudless/identity/testing';
import { createNetworkProxy } from '../proxy/network-proxy.js';
import type {
  AccessRecord,
  CheckClients,
  HealthReport,
  NetworkProxy,
  NetworkProxyOptions,
} from '../ports.js';
import { silentTestLog } from './silent-test-log.js';
import { duplexPair } from './duplex-pair.js';

type UpdateInit = MessageInitShape<typeof NetworkUpdateSchema>;

const NO_CHECKS: CheckClients = {
  tcp: () => Promise.reject(new Error('no checks in this test')),
  http: () => Promise.reject(new Error('no checks in this test')),
  grpc: () => Promise.reject(new Error('no checks in this test')),
};

/** A proxy of a test with what it was given. */
export interface TestProxy {
  readonly nodeId: string;
  readonly proxy: NetworkProxy;
  readonly meter: RecordingMeter;
  readonly access: AccessRecord[];
  readonly credential: TestCredential;
  /** Gives the proxy another certificate of the node. */
  renew(credential: TestCredential): void;
  /** Connects to an address of a service, once the proxy listens there. */
  dial(address: string, port: number): Promise<Socket>;
  /** Port of this machine that stands for a UDP address of a service. */
  udpPort(address: string, port: number): Promise<number>;
  isListening(address: string, port: number): boolean;
}

/** A coordinator in memory with real proxies whose addresses are loopback ports. */
export class TestCluster {
  private readonly feeds = new Map<string, Feed>();
  private readonly proxies = new Map<string, TestProxy>();
  private readonly closers: (() => unknown)[] = [];
  /** Reports of the proxies about the health of endpoints. */
  readonly reports: HealthReport[] = [];
  private revision = 1n;
  private readonly sent: UpdateInit[] = [
    {
      settings: {
        ...{ serviceCidr: '10.96.0.0/16', clusterDomain: 'cloudless.internal' },
        dnsAddress: '10.96.0.10',
      },
      ...{ revision: 1n, reset: true, complete: true },
    },
  ];

  private constructor(
    readonly clock: ManualClock & Clock,
    readonly authority: TestAuthority,
    private readonly directory: string,
  ) {}

  static async create(): Promise<TestCluster> {
    const clock = new ManualClock();
    const authority = await TestAuthority.create({ nowMs: clock.wallTime() });
    return new TestCluster(clock, authority, await mkdtemp(join(tmpdir(), 'mesh-')));
  }

  /**
   * Adds a node with a proxy.
   * @param options - `isReachable`: whether the proxy has a mesh address; `credential`: presented in
   *   place of a certificate of the node; `hasTls`: false for a plaintext cluster.
   */
  async addProxy(
    nodeId: string,
    options: {
      readonly isReachable?: boolean;
      readonly credential?: TestCredential;
      readonly hasTls?: boolean;
      readonly hostId?: string;
      readonly zone?: string;
      /** No coordinator answers. */
      readonly isOffline?: boolean;
    } & Pick<
      Partial<NetworkProxyOptions>,
      | 'limits'
      | 'identifyClient'
      | 'checkClients'
      | 'isLocalClient'
      | 'listMachineAddresses'
      | 'explainReserved'
      | 'tracer'
    > & {
        /** Error code of attempts to listen at an address; undefined: the proxy listens there. */
        readonly refuseListening?: (address: string) => string | undefined;
      } = {},
  ): Promise<TestProxy> {
    const { isReachable = true, hasTls = true, hostId = nodeId, zone = '', ...rest } = options;
    const { isOffline = false } = options;
    const credential = options.credential ?? (await this.authority.issue('node', nodeId));
    const { bundlePem } = this.authority;
    let identity = { ...credential, bundlePem, trustDomain: 'cloudless' };
    const onRenewal: (() => void)[] = [];
    const sockets = new LoopbackSockets(options.refuseListening);
    const feed = new Feed();
    const meter = new RecordingMeter();
    const access: AccessRecord[] = [];
    const proxy = createNetworkProxy({
      ...{ nodeId, hostId, zone, region: '', sockets, meter, clock: this.clock },
      identity: hasTls
        ? { current: () => identity, onChange: (listener) => void onRenewal.push(listener) }
        : undefined,
      connect: () =>
        isOffline
          ? Promise.reject(new Error('no coordinator answers'))
          : Promise.resolve({
              client: this.client(feed),
              reportHealth: (report) => {
                this.reports.push(report);
                return Promise.resolve();
              },
              close: () => undefined,
            }),
      checkClients: rest.checkClients ?? NO_CHECKS,
      meshListen: isReachable && hasTls ? { host: '127.0.0.1', port: 0 } : undefined,
      prepareRange: () => Promise.resolve(),
      mayListen: () => Promise.resolve(),
      snapshotFile: join(this.directory, `${nodeId}.bin`),
      random: createSeededRandom(1),
      log: silentTestLog,
      accessSample: 1,
      onAccess: (record) => access.push(record),
      limits: rest.limits,
      isLocalClient: rest.isLocalClient,
      listMachineAddresses: rest.listMachineAddresses,
      explainReserved: rest.explainReserved,
      ...definedFields({ identifyClient: rest.identifyClient, tracer: rest.tracer }),
    });
    if (isOffline) this.feeds.delete(nodeId);
    else this.feeds.set(nodeId, feed);
    await proxy.start();
    this.closers.push(() => proxy.close());
    if (!isOffline)
      for (const update of this.sent) await feed.push(create(NetworkUpdateSchema, update));
    const mesh = proxy.status().meshAddress;
    const address = mesh === undefined ? '' : `127.0.0.1:${mesh.port}`;
    const test: TestProxy = {
      ...{ nodeId, proxy, meter, access, credential },
      renew: (renewed) => {
        identity = { ...identity, ...renewed };
        for (const listener of onRenewal) listener();
      },
      dial: (at, port) => sockets.dial(at, port),
      udpPort: (at, port) => sockets.udpPort(at, port),
      isListening: (at, port) => sockets.has('tcp', at, port),
    };
    this.proxies.set(nodeId, test);
    await this.update({ nodes: [this.aNode(nodeId, { address, hostId }, credential.serial)] });
    return test;
  }

  aNode(
    id: string,
    network: { readonly address: string; readonly hostId: string },
    serial: string,
  ): MessageInitShape<typeof NetworkNodeEntrySchema> {
    return { id, network, acceptedSerials: [serial], alive: true };
  }

  /** Sends a change to all proxies. Resolves when they have applied it. */
  async update(update: UpdateInit): Promise<void> {
    const whole = { ...update, revision: (this.revision += 1n), complete: true };
    this.sent.push(whole);
    const message = create(NetworkUpdateSchema, whole);
    await Promise.all([...this.feeds.values()].map((feed) => feed.push(message)));
  }

  /** Listens at a loopback port until the test ends. */
  async serve(onConnection: (socket: Socket) => void): Promise<number> {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => undefined);
      this.closers.push(() => socket.destroy());
      onConnection(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.closers.push(() => server.close());
    return (server.address() as AddressInfo).port;
  }

  /** Answers each datagram with `text` and the datagram. */
  async serveUdp(text: string): Promise<number> {
    const socket = createSocket('udp4');
    socket.on('message', (message, { address, port }) =>
      socket.send(Buffer.concat([Buffer.from(text), message]), port, address),
    );
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    this.closers.push(() => socket.close());
    return socket.address().port;
  }

  async close(): Promise<void> {
    for (const close of this.closers.reverse()) await close();
    await rm(this.directory, { recursive: true });
  }

  private client(feed: Feed): NodeNetworkClient {
    return {
      syncNetwork: (reports: AsyncIterable<NetworkReport>, { signal }: { signal: AbortSignal }) =>
        feed.open(reports, signal),
      relayNetwork: (requests: AsyncIterable<RelayNetworkRequest>) => this.relay(requests),
    } as unknown as NodeNetworkClient;
  }

  private async *relay(requests: AsyncIterable<RelayNetworkRequest>) {
    const [near, far] = duplexPair();
    const iterator = requests[Symbol.asyncIterator]();
    const first: unknown = (await iterator.next()).value;
    const { message } = first as RelayNetworkRequest;
    if (message.case !== 'target') throw new Error('the first message is not the target');
    this.proxies.get(message.value.nodeId)?.proxy.acceptRelay(message.value.fromNodeId, far);
    void (async () => {
      for (;;) {
        const next = await iterator.next();
        if (next.done === true) break;
        const sent = next.value as RelayNetworkRequest;
        if (sent.message.case === 'data') near.write(sent.message.value);
      }
      near.end();
    })();
    for await (const chunk of near)
      yield create(RelayNetworkResponseSchema, { data: chunk as Buffer });
  }
}

/** Updates for one proxy, and its reports. */
class Feed {
  private readonly queue: NetworkUpdate[] = [];
  private readonly waiting = new Map<bigint, () => void>();
  private wake: (() => void) | undefined;

  /** Resolves when the proxy has applied the update. */
  push(update: NetworkUpdate): Promise<void> {
    this.queue.push(update);
    this.wake?.();
    return new Promise((resolve) => this.waiting.set(update.revision, resolve));
  }

  async *open(
    reports: AsyncIterable<NetworkReport>,
    signal: AbortSignal,
  ): AsyncGenerator<NetworkUpdate> {
    void this.read(reports);
    signal.addEventListener('abort', () => this.wake?.());
    while (!signal.aborted) {
      const next = this.queue.shift();
      if (next !== undefined) yield next;
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  private async read(reports: AsyncIterable<NetworkReport>): Promise<void> {
    for await (const { appliedRevision } of reports)
      for (const [revision, resolve] of this.waiting)
        if (revision <= appliedRevision) {
          this.waiting.delete(revision);
          resolve();
        }
  }
}

/** Gives each address of a service a free loopback port. */
class LoopbackSockets {
  private readonly open = new Map<string, number>();
  private readonly waiting = new Map<string, (() => void)[]>();

  constructor(private readonly refuse: (address: string) => string | undefined = () => undefined) {}

  async listenTcp(address: string, port: number): Promise<Server> {
    const code = this.refuse(address);
    if (code !== undefined) throw Object.assign(new Error(code), { code });
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.add(`tcp ${address}:${port}`, (server.address() as AddressInfo).port, server);
    return server;
  }

  async bindUdp(address: string, port: number): Promise<UdpSocket> {
    const socket = createSocket('udp4');
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    this.add(`udp ${address}:${port}`, socket.address().port, socket);
    return socket;
  }

  has(protocol: 'tcp' | 'udp', address: string, port: number): boolean {
    return this.open.has(`${protocol} ${address}:${port}`);
  }

  async dial(address: string, port: number): Promise<Socket> {
    const actual = await this.portOf(`tcp ${address}:${port}`);
    const socket = connect({ port: actual, host: '127.0.0.1', allowHalfOpen: true });
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    return socket;
  }

  udpPort(address: string, port: number): Promise<number> {
    return this.portOf(`udp ${address}:${port}`);
  }

  private add(key: string, port: number, socket: Server | UdpSocket): void {
    this.open.set(key, port);
    const remove = (): void => {
      if (this.open.get(key) === port) this.open.delete(key);
    };
    // `close` of a server is emitted after its last connection.
    const close = socket.close.bind(socket) as () => void;
    Object.assign(socket, { close: () => (remove(), close()) });
    for (const resolve of this.waiting.get(key) ?? []) resolve();
    this.waiting.delete(key);
  }

  private async portOf(key: string): Promise<number> {
    for (;;) {
      const port = this.open.get(key);
      if (port !== undefined) return port;
      await new Promise<void>((resolve) => {
        this.waiting.set(key, [...(this.waiting.get(key) ?? []), resolve]);
      });
    }
  }
}

/** A service of TCP port 80 named `http` at a virtual address. */
export function aService(
  name: string,
  clusterIp: string,
  spec: MessageInitShape<typeof NetworkServiceEntrySchema>['spec'] = {},
  loadBalancer: MessageInitShape<typeof NetworkServiceEntrySchema>['loadBalancer'] = {},
): MessageInitShape<typeof NetworkServiceEntrySchema> {
  return {
    ...{ namespace: 'default', name, uid: `uid-${name}`, clusterIp, loadBalancer },
    spec: { ports: [{ name: 'http', port: 80 }], ...spec },
  };
}

/** A ready endpoint at a loopback port. */
export function anEndpoint(
  service: string,
  id: string,
  nodeId: string,
  port: number,
  changes: MessageInitShape<typeof NetworkEndpointEntrySchema> = {},
): MessageInitShape<typeof NetworkEndpointEntrySchema> {
  return {
    ...{ namespace: 'default', service, nodeId, workload: service, replicaId: id },
    id: `default/${service}/${id}`,
    ports: [{ name: 'http', ip: '127.0.0.1', port }],
    ...{ weight: 100, ready: true, version: 1 },
    ...changes,
  };
}
