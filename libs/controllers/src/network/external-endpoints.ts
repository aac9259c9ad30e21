import { EndpointHealth_Status as Health } from '@cloudless/api';
import type { EndpointRecord, ServiceRecord } from '@cloudless/api/store';
import { canCheckEndpoints, scoreChecker, type ClusterView } from '@cloudless/cluster-state';
import { DEFAULT_ENDPOINT_WEIGHT } from '@cloudless/network';
import { drainMarked } from './drain-marked.js';
import { encodeExternalEndpoint } from './entry-encoding.js';
import type { EntrySet } from './entry-set.js';

/** The node that checks an endpoint, with its score: the highest one of all nodes. */
interface Assignment {
  readonly nodeId: string;
  readonly score: number;
}

/**
 * The entries of endpoints outside the cluster. Each endpoint of a service with a health check has
 * one node that checks the endpoint. The nodes share the checks evenly, and a node that joins or
 * leaves moves only the checks that it takes over or had.
 */
export class ExternalEndpoints {
  private readonly marked = new Set<string>();
  /** Keys of the endpoints of each service. */
  private readonly byService = new Map<string, Set<string>>();
  private readonly assignments = new Map<string, Assignment>();
  /** Nodes that can check endpoints. */
  private readonly checkers = new Set<string>();
  private derivedCount = 0;

  constructor(
    private readonly source: { readonly view: () => ClusterView },
    private readonly entries: EntrySet,
  ) {}

  /** Number of entries that were derived so far. */
  get derivedEntries(): number {
    return this.derivedCount;
  }

  get isBehind(): boolean {
    return this.marked.size > 0;
  }

  /** Marks an endpoint that has changed. */
  mark(key: string): void {
    this.marked.add(key);
  }

  /** Marks the endpoints of a service that has changed. */
  markService(serviceKey: string): void {
    for (const key of this.byService.get(serviceKey) ?? []) this.marked.add(key);
  }

  /** Considers a node that has changed, appeared or disappeared as a checker. */
  markNode(nodeId: string): void {
    const view = this.source.view();
    const node = view.node(nodeId)?.value;
    const isChecker =
      node !== undefined && canCheckEndpoints(node) && view.nodeBan(nodeId) === undefined;
    if (isChecker === this.checkers.has(nodeId)) return;
    if (isChecker) this.checkers.add(nodeId);
    else this.checkers.delete(nodeId);
    for (const [key, { nodeId: checkedBy, score }] of this.assignments)
      if (isChecker ? scoreChecker(nodeId, key) > score : checkedBy === nodeId)
        this.marked.add(key);
  }

  /** Derives marked entries again until `isDone` returns true. */
  update(isDone: () => boolean): void {
    drainMarked(this.marked, isDone, (key) => this.updateEndpoint(key));
  }

  private updateEndpoint(key: string): void {
    this.derivedCount += 1;
    const view = this.source.view();
    const record = view.externalEndpoint(key)?.value;
    const serviceKey = key.slice(0, key.lastIndexOf('/'));
    this.group(serviceKey, key, record !== undefined);
    const service = view.service(serviceKey)?.value;
    if (record?.endpoint === undefined || service?.uid !== record.serviceUid) {
      this.assignments.delete(key);
      this.entries.set(key, undefined);
      return;
    }
    const checkedByNodeId = this.assign(key, service);
    const { endpoint } = record;
    this.entries.set(
      key,
      encodeExternalEndpoint({
        ...{ id: key, service, checkedByNodeId },
        port: { name: endpoint.portName, ip: endpoint.address, port: endpoint.port },
        location: endpoint,
        weight: endpoint.weight ?? DEFAULT_ENDPOINT_WEIGHT,
        ready: isHealthy(record, service),
      }),
    );
  }

  private group(serviceKey: string, key: string, exists: boolean): void {
    const keys = this.byService.get(serviceKey);
    if (exists) this.byService.set(serviceKey, (keys ?? new Set()).add(key));
    else if (keys?.delete(key) === true && keys.size === 0) this.byService.delete(serviceKey);
  }

  /** @returns The node that checks the endpoint; empty when none can, or none needs to. */
  private assign(key: string, service: ServiceRecord): string {
    if (service.loadBalancer?.healthCheck === undefined) {
      this.assignments.delete(key);
      return '';
    }
    // Endpoints without a checker have score -1, so that the first node that appears takes them.
    let best: Assignment = { nodeId: '', score: -1 };
    for (const nodeId of this.checkers) {
      const score = scoreChecker(nodeId, key);
      if (score > best.score) best = { nodeId, score };
    }
    this.assignments.set(key, best);
    return best.nodeId;
  }
}

/** An endpoint that was never checked counts as healthy only when nothing checks it. */
function isHealthy({ endpoint }: EndpointRecord, { loadBalancer }: ServiceRecord): boolean {
  const status = endpoint?.health?.status ?? Health.UNKNOWN;
  if (status === Health.UNKNOWN) return loadBalancer?.healthCheck === undefined;
  return status === Health.HEALTHY;
}
