import type { Counter, Labels, Meter, MetricSpec } from '@cloudless/base';
import type { LinkStatus } from '../ports.js';
import type { ServicePort } from '../service/service-port.js';

/** State of a proxy that the metrics read. */
export interface ProxyMetricsSource {
  readonly ports: () => Iterable<ServicePort>;
  readonly links: () => readonly LinkStatus[];
  readonly handshakes: () => { readonly pending: number; readonly failed: number };
  readonly openConnections: () => number;
}

const PER_ENDPOINT = ['service', 'port', 'endpoint'] as const;

/** A counter whose series are the totals that objects keep themselves. */
class MirroredCounter {
  private readonly counter: Counter;
  private readonly series = new Map<string, { readonly labels: Labels; value: number }>();
  private seen = new Set<string>();

  constructor(meter: Meter, spec: MetricSpec) {
    this.counter = meter.counter(spec);
  }

  /** Raises a series to a total. */
  set(labels: Labels, total: number): void {
    const key = Object.values(labels).join('\n');
    this.seen.add(key);
    const known = this.series.get(key);
    // The object was replaced by one with the same labels.
    const added = total - (known === undefined || total < known.value ? 0 : known.value);
    if (known === undefined) this.series.set(key, { labels, value: total });
    else known.value = total;
    this.counter.add(added, labels);
  }

  /** Removes the series that were not set since the last call. */
  removeOthers(): void {
    for (const [key, { labels }] of this.series) {
      if (this.seen.has(key)) continue;
      this.series.delete(key);
      this.counter.remove(labels);
    }
    this.seen = new Set();
  }
}

/**
 * Publishes the counts of a proxy. They are kept by services and endpoints as plain numbers and read
 * when the metrics are exposed, so that a connection costs no look-up of labels.
 * @returns A function that ends the publication.
 */
export function publishMetrics(meter: Meter, source: ProxyMetricsSource): () => void {
  const name = (rest: string): string => `cloudless_network_${rest}`;
  const connections = new MirroredCounter(meter, {
    name: name('connections_total'),
    help: 'Connections and UDP sessions of clients of this node, by endpoint.',
    labels: PER_ENDPOINT,
  });
  const failures = new MirroredCounter(meter, {
    name: name('connect_failures_total'),
    help: 'Failed attempts to connect to an endpoint.',
    labels: PER_ENDPOINT,
  });
  const bytes = new MirroredCounter(meter, {
    name: name('bytes_total'),
    help: 'Bytes of ended connections, by endpoint; direction "sent" is from the client.',
    labels: [...PER_ENDPOINT, 'direction'],
  });
  const refusals = new MirroredCounter(meter, {
    name: name('refused_connections_total'),
    help: 'Connections of clients that reached no endpoint, by the reason.',
    labels: ['service', 'port', 'reason'],
  });
  const open = meter.gauge({
    name: name('open_connections'),
    help: 'Connections and UDP sessions that the proxy carries, also for other nodes.',
  });
  const links = meter.gauge({
    name: name('links'),
    help: 'Connections with the proxies of other nodes.',
    labels: ['direction', 'path'],
  });
  const handshakes = meter.gauge({
    name: name('pending_handshakes'),
    help: 'Incomplete TLS handshakes of other proxies.',
  });
  const rejected = new MirroredCounter(meter, {
    name: name('rejected_handshakes_total'),
    help: 'TLS handshakes of other proxies that failed or were refused.',
  });
  return meter.onExpose(() => {
    for (const port of source.ports()) {
      const labels = { service: port.serviceKey, port: port.name };
      for (const [endpoint, counts] of port.counts) {
        connections.set({ ...labels, endpoint }, counts.connections);
        failures.set({ ...labels, endpoint }, counts.failures);
        bytes.set({ ...labels, endpoint, direction: 'sent' }, counts.sentBytes);
        bytes.set({ ...labels, endpoint, direction: 'received' }, counts.receivedBytes);
      }
      for (const [reason, count] of port.refusals) refusals.set({ ...labels, reason }, count);
    }
    for (const counter of [connections, failures, bytes, refusals]) counter.removeOthers();
    open.set(source.openConnections());
    for (const direction of ['in', 'out'] as const)
      for (const path of ['link', 'relay'] as const)
        links.set(
          source.links().filter((each) => each.direction === direction && each.path === path)
            .length,
          { direction, path },
        );
    const { pending, failed } = source.handshakes();
    handshakes.set(pending);
    rejected.set({}, failed);
  });
}
