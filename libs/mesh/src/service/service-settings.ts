import {
  LoadBalancerConfig_Algorithm,
  ServiceSpec_SessionAffinity,
  type LoadBalancerConfig,
  type NetworkServiceEntry,
} from '@cloudless/api';
import { DEFAULT_BALANCER_CONFIG, type BalancerConfig } from '@cloudless/network';
import type { ServiceSettings } from './service-port.js';

/** Time to connect to an endpoint unless the service sets another, milliseconds. */
export const DEFAULT_CONNECT_TIMEOUT_MS = 2_000;
const DEFAULT_AFFINITY_MS = 3 * 3_600_000;

const ALGORITHMS: Readonly<Record<LoadBalancerConfig_Algorithm, BalancerConfig['algorithm']>> = {
  [LoadBalancerConfig_Algorithm.RANDOM_TWO]: 'randomTwo',
  [LoadBalancerConfig_Algorithm.ROUND_ROBIN]: 'roundRobin',
  [LoadBalancerConfig_Algorithm.WEIGHTED]: 'weighted',
  [LoadBalancerConfig_Algorithm.LEAST_CONNECTIONS]: 'leastConnections',
  [LoadBalancerConfig_Algorithm.SOURCE_HASH]: 'sourceHash',
};

/** Returns how connections to a service are carried. Absent fields have the documented defaults. */
export function toServiceSettings({ spec, loadBalancer }: NetworkServiceEntry): ServiceSettings {
  const keepsClients = spec?.sessionAffinity === ServiceSpec_SessionAffinity.CLIENT_IP;
  const affinityMs = toMs(spec?.sessionAffinityTimeout) ?? DEFAULT_AFFINITY_MS;
  return {
    balancer: {
      algorithm: ALGORITHMS[loadBalancer?.algorithm ?? LoadBalancerConfig_Algorithm.RANDOM_TWO],
      localityAware: loadBalancer?.localityAware ?? true,
      outlierEjection: toOutlierEjection(loadBalancer),
      sessionAffinityMs: keepsClients ? affinityMs : undefined,
      maxConnections: loadBalancer?.maxConnections ?? 0,
    },
    connectTimeoutMs: toMs(loadBalancer?.connectTimeout) ?? DEFAULT_CONNECT_TIMEOUT_MS,
    idleTimeoutMs: toMs(loadBalancer?.idleTimeout) ?? 0,
    drainTimeoutMs: toMs(loadBalancer?.drainTimeout) ?? 0,
    proxyProtocol: spec?.proxyProtocol ?? false,
  };
}

function toOutlierEjection(
  config: LoadBalancerConfig | undefined,
): BalancerConfig['outlierEjection'] {
  const defaults = DEFAULT_BALANCER_CONFIG.outlierEjection;
  const ejection = config?.outlierEjection;
  if (ejection === undefined || defaults === undefined) return defaults;
  if (ejection.disabled) return undefined;
  return {
    consecutiveFailures: ejection.consecutiveFailures || defaults.consecutiveFailures,
    baseEjectionMs: toMs(ejection.baseEjectionTime) ?? defaults.baseEjectionMs,
    maxEjectionPercent: ejection.maxEjectionPercent || defaults.maxEjectionPercent,
  };
}

/** Returns undefined for an absent duration and for one of 0. */
export function toMs(
  duration: { readonly seconds: bigint; readonly nanos: number } | undefined,
): number | undefined {
  if (duration === undefined) return undefined;
  return Number(duration.seconds) * 1_000 + duration.nanos / 1_000_000 || undefined;
}
