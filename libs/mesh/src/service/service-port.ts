import type { NetworkEndpointEntry } from '@cloudless/api';
import { ServiceBalancer, type BalancerConfig, type OpenConnections } from '@cloudless/network';
import type { Place } from '@cloudless/network';
import type { Random } from '@cloudless/base';

/** Settings of a service for its connections: balancing, timeouts and the PROXY header. */
export interface ServiceSettings {
  readonly balancer: BalancerConfig;
  readonly connectTimeoutMs: number;
  /** 0: connections without data stay. */
  readonly idleTimeoutMs: number;
  /** 0: connections to an endpoint that leaves continue until its replica ends. */
  readonly drainTimeoutMs: number;
  readonly proxyProtocol: boolean;
}

/** An endpoint of one port of a service. */
export interface EndpointTarget {
  readonly endpoint: NetworkEndpointEntry;
  readonly portName: string;
  readonly ip: string;
  readonly port: number;
  readonly isReady: boolean;
  /** The endpoint is in this network namespace, so as near as those of the own node. */
  readonly isLocal?: boolean;
}

/** Counts of one endpoint since the start of the proxy. */
export interface EndpointCounts {
  connections: number;
  failures: number;
  sentBytes: number;
  receivedBytes: number;
}

/** One port of a service: its endpoints and their balancer. */
export class ServicePort {
  readonly balancer: ServiceBalancer;
  readonly counts = new Map<string, EndpointCounts>();
  /** Refused and failed connections by result. */
  readonly refusals = new Map<string, number>();
  openConnections = 0;
  private targets = new Map<string, EndpointTarget>();
  private readyCount = 0;

  constructor(
    /** `<namespace>/<name>`. */
    readonly serviceKey: string,
    readonly name: string,
    readonly protocol: 'tcp' | 'udp',
    public settings: ServiceSettings,
    private readonly here: Place,
    random: Random,
    connections: OpenConnections,
  ) {
    this.balancer = new ServiceBalancer({ config: settings.balancer, here, random, connections });
  }

  /** Returns true when an endpoint receives new connections. */
  get hasReady(): boolean {
    return this.readyCount > 0;
  }

  target(endpointId: string): EndpointTarget | undefined {
    return this.targets.get(endpointId);
  }

  configure(settings: ServiceSettings): void {
    this.settings = settings;
    this.balancer.configure(settings.balancer);
  }

  /** Replaces the endpoints. Returns the ids of those that receive new connections no longer. */
  setTargets(targets: readonly EndpointTarget[]): readonly string[] {
    const earlier = this.targets;
    this.targets = new Map(targets.map((target) => [target.endpoint.id, target]));
    this.readyCount = targets.filter(
      ({ isReady, endpoint }) => isReady && endpoint.weight > 0,
    ).length;
    this.balancer.setEndpoints(
      targets.map(({ endpoint, isReady, isLocal }) => ({
        id: endpoint.id,
        nodeId: isLocal === true ? this.here.nodeId : endpoint.nodeId,
        zone: endpoint.zone,
        region: endpoint.region,
        ready: isReady,
        workload: endpoint.workload,
        weight: endpoint.weight,
        version: endpoint.version,
      })),
    );
    for (const id of this.counts.keys()) if (!this.targets.has(id)) this.counts.delete(id);
    return [...earlier.values()]
      .filter(({ endpoint, isReady }) => isReady && this.targets.get(endpoint.id)?.isReady !== true)
      .map(({ endpoint }) => endpoint.id);
  }

  countsOf(endpointId: string): EndpointCounts {
    let counts = this.counts.get(endpointId);
    if (counts === undefined) {
      counts = { connections: 0, failures: 0, sentBytes: 0, receivedBytes: 0 };
      this.counts.set(endpointId, counts);
    }
    return counts;
  }

  countRefusal(result: string): void {
    this.refusals.set(result, (this.refusals.get(result) ?? 0) + 1);
  }
}
