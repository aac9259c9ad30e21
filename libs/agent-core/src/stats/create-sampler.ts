import type { AgentOptions } from '../agent-options.js';
import type { NodeReplicas } from '../replica/node-replicas.js';
import { createContainerMetrics } from './container-metrics.js';
import { StatsSampler } from './stats-sampler.js';

/** Creates the sampler of an agent; undefined for an agent that reads no statistics. */
export function createSampler(
  { stats: reader, meter, runtime, clock, log }: AgentOptions,
  replicas: NodeReplicas,
): StatsSampler | undefined {
  if (reader === undefined) return undefined;
  const observer = meter === undefined ? {} : { observer: createContainerMetrics(meter) };
  return new StatsSampler({
    reader,
    runtime,
    replicas,
    clock,
    log: log.child({ component: 'stats' }),
    ...observer,
  });
}
