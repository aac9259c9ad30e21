import { clone, create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  LoadBalancerConfigSchema,
  OutlierEjectionSchema,
  ServiceSpecSchema,
  ServiceSpec_SessionAffinity as Affinity,
  EndpointHealthCheck_Type as CheckType,
  type LoadBalancerConfig,
  type ServiceSpec,
} from '../gen.js';

/** Defaults of absent fields of services and of their balancing. Times are in milliseconds. */
export const SERVICE_DEFAULTS = {
  affinityTimeoutMs: 3 * 3_600_000,
  /** Share of new connections of an endpoint. */
  weight: 100,
  connectTimeoutMs: 2_000,
  checkIntervalMs: 10_000,
  checkTimeoutMs: 2_000,
  healthyThreshold: 2,
  unhealthyThreshold: 3,
  checkPath: '/',
  ejectionFailures: 3,
  baseEjectionMs: 5_000,
  maxEjectionPercent: 50,
} as const;

/** Returns the name of a port of a service: `port-<number>` when the field is empty. */
export function resolveServicePortName(port: {
  readonly name: string;
  readonly port: number;
}): string {
  return port.name === '' ? `port-${port.port}` : port.name;
}

/** Returns a copy of the spec with a default in every absent field. Idempotent. */
export function withServiceDefaults(spec: ServiceSpec): ServiceSpec {
  const full = clone(ServiceSpecSchema, spec);
  for (const port of full.ports) port.name = resolveServicePortName(port);
  if (full.sessionAffinity === Affinity.CLIENT_IP)
    full.sessionAffinityTimeout ??= durationFromMs(SERVICE_DEFAULTS.affinityTimeoutMs);
  return full;
}

/**
 * Returns a copy of the configuration with a default in every absent field. Idempotent.
 * @param config - Undefined: the defaults alone.
 */
export function withBalancingDefaults(config: LoadBalancerConfig | undefined): LoadBalancerConfig {
  const full =
    config === undefined
      ? create(LoadBalancerConfigSchema)
      : clone(LoadBalancerConfigSchema, config);
  full.localityAware ??= true;
  full.connectTimeout ??= durationFromMs(SERVICE_DEFAULTS.connectTimeoutMs);
  full.idleTimeout ??= durationFromMs(0);
  full.drainTimeout ??= durationFromMs(0);
  const { healthCheck } = full;
  if (healthCheck !== undefined) {
    if (healthCheck.type === CheckType.HTTP && healthCheck.path === '')
      healthCheck.path = SERVICE_DEFAULTS.checkPath;
    healthCheck.interval ??= durationFromMs(SERVICE_DEFAULTS.checkIntervalMs);
    healthCheck.timeout ??= durationFromMs(SERVICE_DEFAULTS.checkTimeoutMs);
    healthCheck.healthyThreshold ||= SERVICE_DEFAULTS.healthyThreshold;
    healthCheck.unhealthyThreshold ||= SERVICE_DEFAULTS.unhealthyThreshold;
  }
  const outlier = (full.outlierEjection ??= create(OutlierEjectionSchema));
  outlier.consecutiveFailures ||= SERVICE_DEFAULTS.ejectionFailures;
  outlier.baseEjectionTime ??= durationFromMs(SERVICE_DEFAULTS.baseEjectionMs);
  outlier.maxEjectionPercent ||= SERVICE_DEFAULTS.maxEjectionPercent;
  return full;
}
