import { DURATION_BUCKETS, type Clock, type Meter } from '@cloudless/base';
import type { ProbeClients } from '../probes/check-container.js';

/** The same clients of probes, measured. */
export function meterProbes(clients: ProbeClients, meter: Meter, clock: Clock): ProbeClients {
  const requests = meter.counter({
    name: 'cloudless_agent_probe_requests_total',
    help: 'Requests of probes over the network, by protocol, and whether there was an answer; what it says is for the probe to judge.',
    labels: ['protocol', 'answered'],
  });
  const duration = meter.histogram({
    name: 'cloudless_agent_probe_duration_seconds',
    help: 'Time of one request of a probe, by protocol.',
    labels: ['protocol'],
    buckets: DURATION_BUCKETS,
  });
  const measured = async <Result>(protocol: string, work: Promise<Result>): Promise<Result> => {
    const began = clock.now();
    let answered = false;
    try {
      const result = await work;
      answered = true;
      return result;
    } finally {
      requests.add(1, { protocol, answered: String(answered) });
      duration.observe((clock.now() - began) / 1_000, { protocol });
    }
  };
  return {
    http: (request, signal) => measured('http', clients.http(request, signal)),
    grpc: (request, signal) => measured('grpc', clients.grpc(request, signal)),
  };
}
