import type { Duplex } from 'node:stream';
import type { NetworkUpdate } from '@cloudless/api';
import { definedFields, errorFields, noSampledTracer, type Timer } from '@cloudless/base';
import { ExternalAddresses } from '../dial/external-addresses.js';
import { NetworkDns } from '../dns/network-dns.js';
import { EndpointDialler } from '../dial/endpoint-dialler.js';
import { MachineAddresses } from '../entry/machine-addresses.js';
import { ServiceListeners } from '../entry/service-listeners.js';
import { chooseEndpoint } from '../entry/request-endpoints.js';
import { ExitStreams } from '../exit/exit-streams.js';
import { followNetwork } from '../feed/follow-network.js';
import { EndpointChecks } from '../health/endpoint-checks.js';
import { HealthReports } from '../health/health-reports.js';
import { LinkPool } from '../link/link-pool.js';
import { MeshListener } from '../link/mesh-listener.js';
import { AccessLog } from '../metrics/access-log.js';
import { publishMetrics } from '../metrics/proxy-metrics.js';
import { TrafficCounts } from '../traffic/traffic-counts.js';
import {
  NetworkModel,
  NO_CHANGES,
  type NetworkChanges,
  type NetworkView,
} from '../model/network-model.js';
import { SnapshotFile } from '../model/snapshot-file.js';
import {
  DEFAULT_PROXY_LIMITS,
  type CoordinatorConnection,
  type EndpointChoice,
  type EndpointRequest,
  type ListedService,
  type NetworkProxy,
  type NetworkProxyOptions,
  type NetworkProxyStatus,
  type ServedDns,
  type ServiceAddress,
} from '../ports.js';
import { ConnectionTable } from '../service/connection-table.js';
import { EndedReplicas } from '../service/ended-replicas.js';
import { DrainLimits } from '../service/drain-limits.js';
import { ServiceTable } from '../service/service-table.js';
import { createVirtualClients } from '../entry/virtual-clients.js';
import { VirtualRange } from './virtual-range.js';
import { listServiceAddresses, listServices } from './list-services.js';
import type { ProxyContext } from './proxy-context.js';
import { WorkloadPlaces } from './workload-places.js';

/** Time between two searches for idle connections and UDP sessions, milliseconds. */
const IDLE_CHECK_MS = 10_000;
/** Largest number of problems in the status. */
const MAX_PROBLEMS = 100;

/** Creates the network proxy of a node. Nothing happens until `start`. */
export function createNetworkProxy(options: NetworkProxyOptions): NetworkProxy {
  return new NodeNetworkProxy(options);
}

class NodeNetworkProxy implements NetworkProxy {
  private readonly model = new NetworkModel();
  private readonly snapshot: SnapshotFile;
  private readonly stop = new AbortController();
  private readonly onChangeListeners = new Set<(changes: NetworkChanges) => void>();
  private readonly context: ProxyContext;
  private readonly links: LinkPool | undefined;
  private readonly mesh: MeshListener;
  private readonly exit: ExitStreams;
  private readonly machine: MachineAddresses;
  private readonly external: ExternalAddresses;
  private readonly listeners: ServiceListeners;
  private readonly nameServer: NetworkDns;
  private readonly drainLimits: DrainLimits;
  private readonly checks: EndpointChecks;
  private readonly reports: HealthReports;
  readonly traffic: TrafficCounts;
  private readonly unpublish: () => void;
  private coordinator: CoordinatorConnection | undefined;
  private following: Promise<void> = Promise.resolve();
  private idleTimer: Timer | undefined;
  private readonly range: VirtualRange;
  private mayListen = false;
  /** True when everything was known once: from a coordinator or from the snapshot. */
  private isKnown = false;

  constructor(private readonly options: NetworkProxyOptions) {
    const { snapshotFile, clock, log, random, nodeId, hostId, zone, region, sockets } = options;
    this.snapshot = new SnapshotFile(snapshotFile, () => this.model.save(), clock, log);
    const limits = { ...DEFAULT_PROXY_LIMITS, ...options.limits };
    const view = this.model;
    this.machine = new MachineAddresses({
      list: options.listMachineAddresses ?? (() => []),
      serviceCidr: () => view.settings?.serviceCidr ?? '',
      onChange: () => this.listeners.updateNodePorts(),
      clock,
    });
    this.external = new ExternalAddresses(view, () => this.machine.current);
    const isLocalNode = (id: string): boolean => this.context.dialler.isLocal(id);
    const ended = new EndedReplicas(isLocalNode);
    this.links =
      options.identity === undefined
        ? undefined
        : new LinkPool({
            ...{ nodeId, limits, clock, log },
            identity: options.identity,
            node: (id) => view.nodes.get(id),
            coordinator: () => this.coordinator,
            onOpen: (request, stream, link) => this.exit.open(request, stream, link),
          });
    this.mesh = new MeshListener({
      ...{ sockets, clock, random, log },
      onConnection: (socket) =>
        this.links?.accept(socket, 'link', socket.remoteAddress ?? 'an unknown address'),
    });
    const { onAccess, accessSample: sample, tracer = noSampledTracer } = options;
    const places = new WorkloadPlaces({
      ...{ view, clock, nodeId },
      isShared: (address) => /^127\.|^::1$/.test(address) || this.machine.current.includes(address),
    });
    this.context = {
      ...{ nodeId, clock, random, log, limits, view, tracer },
      ended,
      services: new ServiceTable(view, { nodeId, zone, region }, random, isLocalNode, ended),
      dialler: new EndpointDialler({
        ...{ nodeId, hostId, view, clock },
        links: this.links,
        explainRefusedAddress: (ip) => this.external.explainRefused(ip),
      }),
      connections: new ConnectionTable(),
      access: new AccessLog({ log, random, sample, onAccess }),
      trustDomain: () => this.links?.trustDomain,
      places,
      identifyClient: options.identifyClient ?? ((address) => places.clientAt(address)),
    };
    this.exit = new ExitStreams(this.context);
    this.drainLimits = new DrainLimits(clock, (id) =>
      this.context.connections.resetEndpoint(id, 'the drain timeout has passed'),
    );
    this.reports = new HealthReports({ clock, random, log });
    this.checks = new EndpointChecks({
      ...{ nodeId, view, clock, random, log, clients: options.checkClients },
      explainRefused: (ip) => this.external.explainRefused(ip),
      report: (report) => this.reports.put(report),
    });
    const mayUseVirtual = createVirtualClients(view, clock, options.isLocalClient);
    this.listeners = new ServiceListeners({
      ...{ context: this.context, sockets, mayUseVirtual },
      nodePortAddresses: () => this.machine.current,
      explainReserved: options.explainReserved ?? (() => undefined),
    });
    this.range = new VirtualRange({
      prepare: options.prepareRange,
      onReady: () => {
        this.listeners.serveVirtual(true);
        void this.nameServer.listen();
      },
      ...{ clock, random, log },
    });
    this.nameServer = new NetworkDns({
      ...{ view, sockets, clock, log },
      isLocalNode,
      isLocalClient: mayUseVirtual,
    });
    this.traffic = new TrafficCounts(random, view, () => this.context.services.ports());
    this.unpublish = publishMetrics(options.meter, {
      ports: () => this.context.services.ports(),
      links: () => this.links?.status() ?? [],
      handshakes: () => ({
        pending: this.links?.pendingHandshakes ?? 0,
        failed: this.links?.failedHandshakes ?? 0,
      }),
      openConnections: () => this.context.connections.size,
    });
  }

  get view(): NetworkView {
    return this.model;
  }

  async start(): Promise<void> {
    const { nodeId, connect, clock, random, log } = this.options;
    await this.loadSnapshot();
    if (this.links !== undefined) await this.mesh.start(this.options);
    this.following = followNetwork({
      ...{ nodeId, connect, clock, random, log, openTraffic: () => this.traffic.open() },
      resume: () => this.model.resume,
      apply: (update) => this.apply(update),
      onConnected: (connection) => {
        this.coordinator = connection;
        this.reports.setConnection(connection);
      },
      signal: this.stop.signal,
    });
    this.machine.start();
    void this.waitToListen();
    this.checkIdle();
  }

  async close(): Promise<void> {
    this.stop.abort();
    this.machine.close();
    this.idleTimer?.cancel();
    this.drainLimits.close();
    this.checks.stop();
    this.reports.close();
    this.unpublish();
    this.range.close();
    this.listeners.close(false);
    this.nameServer.close();
    this.mesh.close();
    this.context.connections.resetWhere(() => true, 'the proxy stops');
    this.links?.close();
    await this.following;
    await this.snapshot.close();
  }

  async drain(withinMs: number): Promise<void> {
    this.mayListen = false;
    this.machine.close();
    this.checks.stop();
    this.range.close();
    this.snapshot.stop();
    this.listeners.close(true);
    this.nameServer.close();
    this.mesh.close();
    this.exit.drain();
    this.links?.leave();
    await new Promise<void>((resolve) => {
      const timer = this.options.clock.setTimer(withinMs, resolve);
      void this.connectionsEnded().then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  /** Waits for the last client, then until the peers have read everything. */
  private async connectionsEnded(): Promise<void> {
    await this.context.connections.empty();
    this.links?.leave();
    await this.links?.ended();
  }

  setLocalNodes(nodeIds: readonly string[]): void {
    this.context.dialler.setLocalNodes(nodeIds);
    this.context.services.noteLocalNodes(nodeIds);
    this.nameServer.noteLocalNodes(this.isKnown);
  }

  endReplicas(replicaIds: readonly string[]): void {
    const { connections, ended, services } = this.context;
    ended.add(replicaIds);
    connections.resetWhere((each) => ended.has(each), 'the replica has ended');
    const changed = services.endedServices();
    if (changed.size > 0) this.follow({ ...NO_CHANGES, endpointsOf: changed });
  }

  acceptRelay(fromNodeId: string, stream: Duplex): void {
    if (this.links === undefined) stream.destroy();
    else this.links.accept(stream, 'relay', `the node "${fromNodeId}" through the relay`);
  }

  choose(request: EndpointRequest): EndpointChoice {
    return chooseEndpoint(this.context, request);
  }

  status(): NetworkProxyStatus {
    const { revision, services, endpoints } = this.model;
    const meshAddress = this.mesh.address;
    const { listeners, mesh, nameServer, range } = this;
    const problems = [mesh.problem, range.problem, nameServer.problem, ...listeners.problems];
    return {
      ...{ revision, complete: revision > 0n, connected: this.coordinator !== undefined },
      services: services.size,
      endpoints: endpoints.size,
      openConnections: this.context.connections.size,
      listeners: this.listeners.openCount,
      links: this.links?.status() ?? [],
      ...definedFields({ meshAddress }),
      problems: problems.filter((problem) => problem !== undefined).slice(0, MAX_PROBLEMS),
    };
  }

  listServices(namespace: string): readonly ListedService[] {
    return listServices(this.model, namespace);
  }

  listServiceAddresses(patterns: readonly string[]): readonly ServiceAddress[] | undefined {
    return this.isKnown ? listServiceAddresses(this.model, patterns) : undefined;
  }

  dns(): ServedDns | undefined {
    const { settings } = this.model;
    const listening = this.nameServer.address;
    if (settings === undefined || listening === undefined) return undefined;
    return { ...listening, domain: settings.clusterDomain };
  }

  onChange(listener: (changes: NetworkChanges) => void): () => void {
    this.onChangeListeners.add(listener);
    return () => this.onChangeListeners.delete(listener);
  }

  private async loadSnapshot(): Promise<void> {
    const bytes = await this.snapshot.load();
    if (bytes === undefined) return;
    try {
      const changes = this.model.load(bytes);
      this.isKnown = true;
      this.follow(changes);
    } catch (reason) {
      this.options.log.warn('the stored network is damaged and not used', errorFields(reason));
    }
  }

  private async waitToListen(): Promise<void> {
    try {
      await this.options.mayListen(this.stop.signal);
    } catch (reason) {
      if (!this.stop.signal.aborted)
        this.options.log.error(
          'the proxy does not listen at virtual addresses',
          errorFields(reason),
        );
      return;
    }
    if (this.stop.signal.aborted) return;
    this.mayListen = true;
    this.listeners.start();
    this.prepareRange();
  }

  /** Makes the range of the settings reachable, then listens at virtual addresses. */
  private prepareRange(): void {
    const cidr = this.model.settings?.serviceCidr ?? '';
    if (this.mayListen && cidr !== '') this.range.serve(cidr);
  }

  private apply(update: NetworkUpdate): bigint {
    this.isKnown ||= update.complete;
    this.follow(this.model.apply(update));
    if (update.complete) this.snapshot.schedule();
    return this.model.revision;
  }

  /** Makes new connections follow a change, and ends connections that lost their endpoint. */
  private follow(changes: NetworkChanges): void {
    const { services, connections } = this.context;
    this.external.apply(changes);
    const { services: changed, unready } = services.apply(changes);
    this.links?.check(changes.nodes);
    for (const id of changes.removedEndpoints)
      connections.resetEndpoint(id, 'the endpoint is gone');
    for (const id of changes.movedEndpoints)
      connections.resetEndpoint(id, 'the endpoint has another address by now');
    for (const { port, endpointId } of unready)
      if (port.protocol === 'udp')
        connections.resetEndpoint(endpointId, 'the endpoint leaves', true);
    this.drainLimits.apply(this.model, changes);
    const gone = [...changes.nodes].filter((id) => !this.model.nodes.has(id));
    if (gone.length > 0)
      connections.resetWhere(({ nodeId }) => gone.includes(nodeId), 'the node is gone');
    this.checks.apply(changes);
    this.nameServer.apply(changes, this.isKnown);
    this.listeners.update(changed);
    this.exit.retry();
    if (changes.settings) {
      this.machine.refresh();
      this.prepareRange();
    }
    for (const listener of this.onChangeListeners) listener(changes);
  }

  private checkIdle(): void {
    this.idleTimer = this.options.clock.setTimer(IDLE_CHECK_MS, () => {
      const nowMs = this.options.clock.now();
      this.context.connections.endIdle(nowMs);
      this.listeners.endIdle(nowMs);
      this.checkIdle();
    });
  }
}
