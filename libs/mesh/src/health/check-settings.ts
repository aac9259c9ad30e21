import { EndpointHealthCheck_Type as Type, type NetworkServiceEntry } from '@cloudless/api';
import type { HealthThresholds } from '@cloudless/network';
import { toMs } from '../service/service-settings.js';

/** Settings of the health checks of a service. */
export interface CheckSettings {
  readonly type: 'tcp' | 'http' | 'grpc';
  /** HTTP: path of the request. */
  readonly path: string;
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly thresholds: HealthThresholds;
}

const TYPES: Readonly<Record<Type, CheckSettings['type']>> = {
  [Type.TCP]: 'tcp',
  [Type.HTTP]: 'http',
  [Type.GRPC]: 'grpc',
};

/**
 * Returns undefined for a service without health check. Absent fields have the documented defaults.
 */
export function toCheckSettings(
  service: Pick<NetworkServiceEntry, 'loadBalancer'> | undefined,
): CheckSettings | undefined {
  const check = service?.loadBalancer?.healthCheck;
  if (check === undefined) return undefined;
  return {
    type: TYPES[check.type],
    path: check.path === '' ? '/' : check.path,
    intervalMs: toMs(check.interval) ?? 10_000,
    timeoutMs: toMs(check.timeout) ?? 2_000,
    thresholds: {
      healthy: check.healthyThreshold || 2,
      unhealthy: check.unhealthyThreshold || 3,
    },
  };
}
