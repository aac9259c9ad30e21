import { DURATION_BUCKETS, type Clock, type Meter } from '@cloudless/base';
import type { ProbeClients } from '../probes/check-container.js';

/** Wraps probe clients so that requests and their durations are measured. */
export function instrumentProbes(clients: ProbeClients, meter: Meter, clock: Clock): ProbeClients {
  const requests = meter.counter({
    name: 'cloudless_agent_probe_requests_total',
    help: 'Network requests of probes, by protocol, and by whether the server answered; the kind of answer does not change the count.',
    labels: ['protocol', 'answered'],
  });
  const duration = meter.histogram({
    name: 'cloudless_agent_probe_duration_seconds',
    help: 'Duration of one network request of a probe, by protocol.',
    labels: ['protocol'],
    buckets: DURATION_BUCKETS,
  });
  const measure = async <Result>(protocol: string, work: Promise<Result>): Promise<Result> => {
    const startedAt = clock.now();
    let answered = false;
    try {
      const result = await work;
      answered = true;
      return result;
    } finally {
      requests.add(1, { protocol, answered: String(answered) });
      duration.observe((clock.now() - startedAt) / 1_000, { protocol });
    }
  };
  return {
    http: (request, signal) => measure('http', clients.http(request, signal)),
    grpc: (request, signal) => measure('grpc', clients.grpc(request, signal)),
  };
}
