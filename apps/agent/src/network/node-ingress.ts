import type { Server } from 'node:net';
import {
  sleep,
  type Clock,
  type Log,
  type Meter,
  type Random,
  type SampledTracer,
} from '@cloudless/base';
import { createIngress, type Ingress, type IngressBackends } from '@cloudless/ingress';
import {
  listExternalAddresses,
  listServedRoutes,
  MachineAddresses,
  type ListeningSockets,
  type NetworkProxy,
  type ReservableListener,
} from '@cloudless/mesh';
import type { CertificateCopies } from './certificate-copies.js';
import type { ProxySettings } from './control-messages.js';
import { IngressListener, listensAt } from './ingress-listener.js';
import { RouteCertificates, type CertificateConnection } from './route-certificates.js';
import { isWildcard } from './tcp-server.js';

/**
 * Longest wait for files of certificates before the ingress listens, milliseconds. A file system that
 * does not answer must not keep HTTP from being served.
 */
const FILES_WAIT_MS = 5_000;

const FLAGS = { ingressHttp: '--ingress-http', ingressHttps: '--ingress-https' } as const;
type IngressSettings = Pick<ProxySettings, keyof typeof FLAGS>;

/**
 * Explains that a setting of the ingress has the TCP port of a listener, which is not for a service
 * then. A setting with 0.0.0.0 or [::] has the port also at addresses of node ports, as
 * {@link listensAt} says, and leaves the other addresses of services free.
 */
export function explainIngressAddress(
  settings: IngressSettings,
  { address, port, scope }: ReservableListener,
): string | undefined {
  for (const key of ['ingressHttp', 'ingressHttps'] as const) {
    const at = settings[key];
    if (at?.port !== port) continue;
    if (scope !== 'node' && isWildcard(at.host)) continue;
    if (listensAt(at.host, address))
      return `${FLAGS[key]} ${at.host}:${at.port} serves HTTP routes there`;
  }
  return undefined;
}

/** Arguments of {@link createNodeIngress}. */
export interface NodeIngressDeps {
  readonly proxy: Pick<NetworkProxy, 'choose' | 'traffic' | 'view' | 'onChange' | 'status'>;
  readonly sockets: Pick<ListeningSockets, 'listenTcp'>;
  readonly copies: Pick<CertificateCopies, 'load' | 'keep' | 'stop'>;
  /** Lists the IPv4 and IPv6 addresses of the machine, with those of loopback. May throw. */
  readonly listAddresses: () => readonly string[];
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter: Meter;
  readonly tracer: SampledTracer;
}

/**
 * Serves the HTTP routes of a node at the addresses of its settings.
 * @returns Undefined when the settings have no such address.
 */
export function createNodeIngress(
  settings: IngressSettings & Pick<ProxySettings, 'nodeId'>,
  deps: NodeIngressDeps,
): NodeIngress | undefined {
  const { ingressHttp, ingressHttps } = settings;
  if (ingressHttp === undefined && ingressHttps === undefined) return undefined;
  return new NodeIngress(settings, deps);
}

/** The HTTP ingress of a node, with the routes and endpoints of its network proxy. */
export class NodeIngress {
  private readonly ingress: Ingress;
  /** Absent: nothing is served with TLS, so that this node needs no keys. */
  private readonly certificates: RouteCertificates | undefined;
  private readonly machine: MachineAddresses;
  private readonly listeners: readonly IngressListener[];
  private readonly unsubscribe: () => void;
  /** True when the copies of certificates are loaded. */
  private isLoaded = false;
  /** True when the routes are those of a coordinator, and not of a snapshot only. */
  private isComplete = false;
  private isListening = false;
  private isStopped = false;

  constructor(
    private readonly settings: IngressSettings & Pick<ProxySettings, 'nodeId'>,
    private readonly deps: NodeIngressDeps,
  ) {
    const { proxy, copies, clock, random, meter, tracer } = deps;
    const log = deps.log.child({ component: 'ingress' });
    this.ingress = createIngress({
      ...{ backends: toBackends(proxy), clock, random, log, meter, tracer },
      onResponse: (response) => proxy.traffic.addResponse(response),
      readSecret: (secret) => this.certificates?.read(secret),
    });
    if (settings.ingressHttps !== undefined)
      this.certificates = new RouteCertificates({
        ...{ nodeId: settings.nodeId, copies, clock, random, log },
        onChange: () => this.ingress.certificatesChanged(),
      });
    this.machine = new MachineAddresses({
      list: deps.listAddresses,
      serviceCidr: () => proxy.view.settings?.serviceCidr ?? '',
      onChange: () => void this.updateListeners(),
      clock,
    });
    const { ingressHttp, ingressHttps } = settings;
    this.listeners = [
      ...this.listen(FLAGS.ingressHttp, ingressHttp, (server) => this.ingress.serveHttp(server)),
      ...this.listen(FLAGS.ingressHttps, ingressHttps, (server) => this.ingress.serveHttps(server)),
    ];
    this.unsubscribe = proxy.onChange(({ routes, services, settings }) => {
      if (settings) this.machine.refresh();
      if (services.size > 0) void this.updateListeners();
      const isFirst = !this.isComplete && proxy.status().complete;
      const isOther = routes.size > 0 || (services.size > 0 && proxy.view.routes.size > 0);
      if (this.isLoaded && (isFirst || isOther)) void this.setRoutes();
    });
  }

  /** Reasons for people why routes are not served. */
  get problems(): readonly string[] {
    const certificates = this.certificates?.problems ?? [];
    const unserved = this.isListening ? this.listeners.map(({ problem }) => problem) : [];
    return [
      ...unserved.filter((problem) => problem !== undefined),
      ...certificates,
      ...this.ingress.status().problems,
    ];
  }

  /** As {@link RouteCertificates.useConnection}. */
  useConnection(connection: CertificateConnection): () => void {
    return this.certificates?.useConnection(connection) ?? (() => undefined);
  }

  /**
   * Listens, with the certificates that are stored on this node. An address that is taken or
   * forbidden is a problem, and tried again. Listeners for every address of the machine follow
   * addresses that come and go, and leave external addresses to services with the same port.
   */
  async start(): Promise<void> {
    await this.certificates?.load();
    this.isLoaded = true;
    await Promise.race([this.setRoutes(), sleep(this.deps.clock, FILES_WAIT_MS)]);
    if (this.isStopped) return;
    this.machine.refresh();
    this.machine.start();
    this.isListening = true;
    await this.updateListeners();
  }

  /** As {@link Ingress.drain}. Certificates are neither fetched nor stored any more. */
  drain(withinMs: number): Promise<void> {
    this.stop();
    return this.ingress.drain(withinMs);
  }

  /** Ends all connections. */
  close(): void {
    this.stop();
    this.ingress.close();
  }

  /** Resolves when the files of certificates are read. */
  private setRoutes(): Promise<void> {
    const { proxy } = this.deps;
    this.isComplete = proxy.status().complete;
    const served = [...listServedRoutes(proxy.view, this.settings.nodeId).values()];
    this.certificates?.update(served, this.isComplete);
    return this.ingress.setRoutes(served);
  }

  private stop(): void {
    this.isStopped = true;
    this.unsubscribe();
    this.machine.close();
    this.certificates?.stop();
    for (const listener of this.listeners) listener.close();
  }

  private async updateListeners(): Promise<void> {
    if (!this.isListening || this.isStopped) return;
    await Promise.all(this.listeners.map((listener) => listener.update()));
  }

  private listen(
    flag: string,
    at: ProxySettings['ingressHttp'],
    serve: (server: Server) => void,
  ): readonly IngressListener[] {
    if (at === undefined) return [];
    const { sockets, log, clock, random } = this.deps;
    const machineAddresses = (): readonly string[] => {
      const external = listExternalAddresses(this.deps.proxy.view.services.values(), at.port);
      return this.machine.current.filter((address) => !external.has(address));
    };
    const options = { flag, at, serve, machineAddresses, sockets, log, clock, random };
    return [new IngressListener(options)];
  }
}

/** The choice of endpoints of the network proxy, for requests. */
function toBackends(proxy: Pick<NetworkProxy, 'choose'>): IngressBackends {
  return {
    choose: ({ service, port, client, exclude }) => {
      const choice = proxy.choose({
        ...{ namespace: service.namespace, service: service.name, port, exclude },
        clientAddress: client.address,
        clientPort: client.port,
        virtual: client.local,
      });
      if (choice.kind === 'refused') return choice;
      const { endpointId: endpoint, namesClient, connect, release } = choice;
      return { kind: 'chosen', endpoint, isShareable: !namesClient, connect, release };
    },
  };
}
