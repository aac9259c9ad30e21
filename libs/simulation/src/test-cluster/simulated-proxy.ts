import { create } from '@bufbuild/protobuf';
import {
  NetworkReportSchema,
  createNodeNetworkClient,
  type NetworkEndpointEntry,
  type NetworkReport,
  type NetworkUpdate,
} from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { DEFAULT_BALANCER_CONFIG, ServiceBalancer } from '@cloudless/network';
import type { TestCluster } from './test-cluster.js';

/** Number of clients whose connections are counted. */
const CLIENTS = 1_000;

/** The network proxy of a node: follows the feed, and keeps its data while no coordinator runs. */
export class SimulatedProxy {
  /** Entries of endpoints, by id. */
  readonly endpoints = new Map<string, NetworkEndpointEntry>();
  /** False: reports no applied updates. */
  acknowledges = true;
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
    void (async () => {
      for await (const update of client.syncNetwork(outgoing, { signal })) {
        this.apply(update);
        if (!update.complete || !this.acknowledges) continue;
        reports.push(create(NetworkReportSchema, { appliedRevision: update.revision }));
        wake();
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
   * Returns the shares of the connections of 1,000 clients of a service, 0 to 1.
   * @param service - `<namespace>/<name>`.
   * @param groupOf - Returns the group of an endpoint, for example its version.
   */
  measureShares(
    service: string,
    groupOf: (endpoint: NetworkEndpointEntry) => string,
  ): ReadonlyMap<string, number> {
    const { nodeId } = this;
    const balancer = new ServiceBalancer({
      config: DEFAULT_BALANCER_CONFIG,
      here: { nodeId, zone: '', region: '' },
      random: createSeededRandom(1),
    });
    const entries = [...this.endpoints.values()].filter(
      (entry) => `${entry.namespace}/${entry.service}` === service,
    );
    balancer.setEndpoints(entries);
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
