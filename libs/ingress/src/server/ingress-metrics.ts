import type { Counter, Gauge, Histogram, Meter } from '@cloudless/base';

/** Upper bounds of durations, seconds. */
const BUCKETS: readonly number[] = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

/** Metrics of HTTP ingress. */
export interface IngressMetrics {
  readonly requests: Counter;
  readonly duration: Histogram;
  readonly connections: Gauge;
}

/** Creates the metrics of HTTP ingress. */
export function createIngressMetrics(meter: Meter): IngressMetrics {
  const name = (rest: string): string => `cloudless_network_ingress_${rest}`;
  return {
    requests: meter.counter({
      name: name('requests_total'),
      help: 'Requests by route and class of the status; an empty route: no route was found.',
      labels: ['route', 'status'],
    }),
    duration: meter.histogram({
      name: name('request_duration_seconds'),
      help: 'Time from the headers of a request to the end of the response.',
      buckets: BUCKETS,
    }),
    connections: meter.gauge({
      name: name('open_connections'),
      help: 'Connections of clients, by listener.',
      labels: ['listener'],
    }),
  };
}
