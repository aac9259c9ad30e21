import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  NetworkReportSchema,
  createNodeNetworkClient,
  type NetworkEndpointEntry,
  type NetworkReport,
  type NetworkUpdate,
} from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import {
  DEFAULT_BALANCER_CONFIG,
  DURATION_BUCKETS,
  ServiceBalancer,
  toDurationBucket,
} from '@cloudless/network';
import type { TestCluster } from './test-cluster.js';

/** Requests to a replica since the start of the proxy. */
interface Counted {
  requests: number;
  errors: number;
  readonly durations: number[];
}

/** Number of clients whose connections are counted. */
const CLIENTS = 1_000;

/** The network proxy of a node: follows the feed, and keeps its data while no coordinator runs. */
export class SimulatedProxy {
  /** Entries of endpoints, by id. */
  readonly endpoints = new Map<string, NetworkEndpointEntry>();
  /** Requests that replicas have answered, and those with an error, by version. */
  readonly served = new Map<number, { requests: number; errors: number }>();
  private readonly traffic = new Map<string, Counted>();
  private sendReport: (report: MessageInitShape<typeof NetworkReportSchema>) => void = () =>
    undefined;
  /** False: reports no applied updates. */
  acknowledges = true;
  private balancers = 0;
  private readonly aliveNodes = new Set<string>();
  private stopping = new AbortController();
  private position = { feedId: '', afterRevision: 0n };

  constructor(private readonly nodeId: string) {}

  /** Opens a stream to the running coordinator. */
  connect(cluster: TestCluster): void {
    this.disconnect();
    const { signal } = (this.stopping = new AbortController());
    const client = createNodeNetworkClient(cluster.transport);
    const reports: NetworkReport[] = [
      create(NetworkReportSchema, { nodeId: this.nodeId, ...this.position }),
    ];
    let wake: () => void = () => undefined;
    signal.addEventListener('abort', () => wake());
    const outgoing = (async function* () {
      while (!signal.aborted) {
        const next = reports.shift();
        if (next !== undefined) yield next;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    })();
    this.sendReport = (report) => {
      reports.push(create(NetworkReportSchema, report));
      wake();
    };
    void (async () => {
      for await (const update of client.syncNetwork(outgoing, { signal })) {
        this.apply(update);
        if (!update.complete || !this.acknowledges) continue;
        this.sendReport({ appliedRevision: update.revision });
      }
    })().catch(() => undefined);
  }

  /** Ends the stream. The data stay. */
  disconnect(): void {
    this.stopping.abort();
  }

  /** Ids of the replicas that receive new connections, sorted. */
  get ready(): readonly string[] {
    return [...this.endpoints.values()]
      .filter(({ ready, nodeId }) => ready && this.aliveNodes.has(nodeId))
      .map(({ replicaId }) => replicaId)
      .sort();
  }

  /**
   * Carries requests of clients of a service, each to the endpoint that the balancer chooses.
   * @param respond - Returns the answer of an endpoint.
   */
  serve(
    service: string,
    requests: number,
    respond: (endpoint: NetworkEndpointEntry) => { status: number; durationMs: number },
  ): void {
    const balancer = this.createBalancer(service);
    for (let client = 0; client < requests; client += 1) {
      const choice = balancer.choose({ clientAddress: '10.9.0.1', nowMs: 0 });
      const entry = choice.kind === 'refused' ? undefined : this.endpoints.get(choice.endpointId);
      if (entry === undefined) continue;
      const { status, durationMs } = respond(entry);
      const none = { requests: 0, errors: 0, durations: Array<number>(DURATION_BUCKETS).fill(0) };
      const counted = this.traffic.get(entry.replicaId) ?? none;
      const served = this.served.get(entry.version) ?? { requests: 0, errors: 0 };
      for (const counts of [counted, served]) {
        counts.requests += 1;
        if (status >= 500) counts.errors += 1;
      }
      const bucket = toDurationBucket(durationMs);
      counted.durations[bucket] = (counted.durations[bucket] ?? 0) + 1;
      this.traffic.set(entry.replicaId, counted);
      this.served.set(entry.version, served);
    }
  }

  /** Reports the counts of all requests so far. */
  reportTraffic(): void {
    const endpoints = [...this.traffic].map(([replicaId, { requests, errors, durations }]) => ({
      replicaId,
      ...{ requests: BigInt(requests), errors: BigInt(errors) },
      durations: durations.map(BigInt),
    }));
    this.sendReport({ traffic: { processId: `${this.nodeId}-1`, endpoints } });
  }

  /**
   * Returns the shares of the connections of 1,000 clients of a service, 0 to 1.
   * @param service - `<namespace>/<name>`.
   * @param groupOf - Returns the group of an endpoint, for example its version.
   */
  measureShares(
    service: string,
    groupOf: (endpoint: NetworkEndpointEntry) => string,
  ): ReadonlyMap<string, number> {
    const balancer = this.createBalancer(service);
    const shares = new Map<string, number>();
    for (let client = 0; client < CLIENTS; client += 1) {
      const clientAddress = `10.9.${client >> 8}.${client & 255}`;
      const choice = balancer.choose({ clientAddress, nowMs: 0 });
      if (choice.kind === 'refused') continue;
      const entry = this.endpoints.get(choice.endpointId);
      const group = entry === undefined ? '' : groupOf(entry);
      shares.set(group, (shares.get(group) ?? 0) + 1 / CLIENTS);
    }
    return shares;
  }

  /** @param service - `<namespace>/<name>`. */
  private createBalancer(service: string): ServiceBalancer {
    const { nodeId } = this;
    const balancer = new ServiceBalancer({
      config: DEFAULT_BALANCER_CONFIG,
      here: { nodeId, zone: '', region: '' },
      random: createSeededRandom((this.balancers += 1)),
    });
    const entries = [...this.endpoints.values()].filter(
      (entry) => `${entry.namespace}/${entry.service}` === service,
    );
    balancer.setEndpoints(entries);
    return balancer;
  }

  private apply(update: NetworkUpdate): void {
    if (update.reset) {
      this.endpoints.clear();
      this.aliveNodes.clear();
    }
    for (const entry of update.endpoints) this.endpoints.set(entry.id, entry);
    for (const id of update.removedEndpoints) this.endpoints.delete(id);
    for (const { id, alive } of update.nodes)
      if (alive) this.aliveNodes.add(id);
      else this.aliveNodes.delete(id);
    for (const id of update.removedNodes) this.aliveNodes.delete(id);
    if (update.feedId !== '') this.position.feedId = update.feedId;
    if (update.complete) this.position.afterRevision = update.revision;
  }
}
