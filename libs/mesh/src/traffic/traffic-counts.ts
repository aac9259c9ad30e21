import type { MessageInitShape } from '@bufbuild/protobuf';
import type { EndpointTrafficSchema, TrafficReportSchema } from '@cloudless/api';
import { randomHex, type Random } from '@cloudless/base';
import { toDurationBucket } from '@cloudless/network';
import type { NetworkView } from '../model/network-model.js';
import type { EndpointCounts, ServicePort } from '../service/service-port.js';

/** A finished HTTP request to an endpoint. */
export interface EndpointResponse {
  /** Id of the endpoint that was tried last. */
  readonly endpoint: string;
  /** Status that the client received. */
  readonly status: number;
  readonly durationMs: number;
}

type Report = MessageInitShape<typeof TrafficReportSchema>;
type Counted = Pick<EndpointCounts, 'connections' | 'failures'>;

/** Counts of one replica since the start of the process. */
interface ReplicaCounts {
  connections: number;
  failures: number;
  requests: number;
  errors: number;
  readonly durations: number[];
  /** Number of changes, so that a stream knows which of them it has sent. */
  changes: number;
}

/** Endpoints in one report; further ones are in the next. */
export const MAX_REPORTED = 10_000;
/** Status from which on a response is an error. */
const FIRST_ERROR = 500;
const PROCESS_ID_BYTES = 8;

/** Counts the traffic to each replica, for the reports of the proxy to the coordinator. */
export class TrafficCounts {
  private readonly processId: string;
  private readonly replicas = new Map<string, ReplicaCounts>();
  /** Counts of the ports at the last collection. */
  private seen = new WeakMap<EndpointCounts, Counted>();

  constructor(
    random: Random,
    private readonly view: Pick<NetworkView, 'endpoints'>,
    private readonly ports: () => Iterable<ServicePort>,
  ) {
    this.processId = randomHex(random, PROCESS_ID_BYTES);
  }

  /** Counts a finished request. Endpoints outside the cluster have no replica and do not count. */
  addResponse({ endpoint, status, durationMs }: EndpointResponse): void {
    const replicaId = this.view.endpoints.get(endpoint)?.replicaId ?? '';
    if (replicaId === '') return;
    const counts = this.countsOf(replicaId);
    counts.requests += 1;
    if (status >= FIRST_ERROR) counts.errors += 1;
    const bucket = toDurationBucket(durationMs);
    while (counts.durations.length <= bucket) counts.durations.push(0);
    counts.durations[bucket] = (counts.durations[bucket] ?? 0) + 1;
    counts.changes += 1;
  }

  /**
   * Begins the reports of one stream.
   * @returns A function that returns the next report: the replicas whose counts have changed since
   *   the report before.
   */
  open(): () => Report {
    const sent = new Map<string, number>();
    return () => {
      this.collect();
      for (const id of sent.keys()) if (!this.replicas.has(id)) sent.delete(id);
      const endpoints: MessageInitShape<typeof EndpointTrafficSchema>[] = [];
      for (const [replicaId, counts] of this.replicas) {
        if (sent.get(replicaId) === counts.changes) continue;
        if (endpoints.length >= MAX_REPORTED) break;
        sent.set(replicaId, counts.changes);
        endpoints.push({
          replicaId,
          connections: BigInt(counts.connections),
          connectFailures: BigInt(counts.failures),
          requests: BigInt(counts.requests),
          errors: BigInt(counts.errors),
          durations: counts.durations.map(BigInt),
        });
      }
      return { processId: this.processId, endpoints };
    };
  }

  /** Adds what the ports have counted, and forgets the replicas that are gone. */
  private collect(): void {
    const present = new Set<string>();
    for (const { replicaId } of this.view.endpoints.values()) present.add(replicaId);
    for (const id of this.replicas.keys()) if (!present.has(id)) this.replicas.delete(id);
    for (const port of this.ports())
      for (const [endpointId, counts] of port.counts) {
        const replicaId = this.view.endpoints.get(endpointId)?.replicaId ?? '';
        if (replicaId !== '') this.addCounts(replicaId, counts);
      }
  }

  private addCounts(replicaId: string, counts: EndpointCounts): void {
    const { connections, failures } = counts;
    const before = this.seen.get(counts);
    const added = connections - (before?.connections ?? 0);
    const failed = failures - (before?.failures ?? 0);
    if (added === 0 && failed === 0) return;
    this.seen.set(counts, { connections, failures });
    const total = this.countsOf(replicaId);
    total.connections += added;
    total.failures += failed;
    total.changes += 1;
  }

  private countsOf(replicaId: string): ReplicaCounts {
    let counts = this.replicas.get(replicaId);
    if (counts === undefined) {
      counts = { connections: 0, failures: 0, requests: 0, errors: 0, durations: [], changes: 0 };
      this.replicas.set(replicaId, counts);
    }
    return counts;
  }
}
