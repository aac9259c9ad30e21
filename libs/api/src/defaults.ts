import { clone, create } from '@bufbuild/protobuf';
import { durationFromMs, durationMs } from '@bufbuild/protobuf/wkt';
import {
  DisconnectSchema,
  Disconnect_Mode,
  ResourceListSchema,
  ResourcesSchema,
  RestartPolicySchema,
  RestartPolicy_Policy,
  RolloutSchema,
  WorkloadSpecSchema,
  PlacementSchema,
  type Disconnect,
  type Placement,
  type Probe,
  type WorkloadSpec,
} from './gen.js';

/** What an absent field of a spec means. */
export const DEFAULTS = {
  replicas: 1,
  priority: 50,
  /** Of requests; a lower limit takes the place of either. */
  cpuMillis: 100,
  memoryBytes: 64n * 1024n * 1024n,
  terminationGraceMs: 10_000,
  /** When ports are declared; 0 otherwise. */
  preStopDelayMs: 1_000,
  maxSurge: 1,
  maxUnavailable: 0,
  minReadyMs: 2_000,
  progressDeadlineMs: 600_000,
  maxFailedNew: 3,
  /** For ON_FAILURE; the other policies have no limit. */
  onFailureMaxRetries: 3,
  stopAfterMs: 10_000,
  lostAfterMs: 0,
  pauseMs: 0,
  maxSkew: 1,
  topology: 'node',
  probeInitialDelayMs: 0,
  probePeriodMs: 10_000,
  probeTimeoutMs: 1_000,
  probeSuccessThreshold: 1,
  probeFailureThreshold: 3,
  probePath: '/',
  namespace: 'default',
  pageSize: 100,
  maxPageSize: 1_000,
} as const;

/** The namespace a request means. */
export function namespaceOf(request: { readonly namespace: string }): string {
  return request.namespace === '' ? DEFAULTS.namespace : request.namespace;
}

/** The name of a port that was declared without one. */
export function portNameOf(port: {
  readonly name: string;
  readonly containerPort: number;
}): string {
  return port.name === '' ? `port-${port.containerPort}` : port.name;
}

/**
 * A copy of the spec in which every absent field has its default. Two stay absent: `min_available`,
 * whose default depends on the count, and `max_retries` where there is no limit. Doing it twice
 * changes nothing more.
 */
export function withDefaults(spec: WorkloadSpec): WorkloadSpec {
  const full = clone(WorkloadSpecSchema, spec);
  full.replicas ??= DEFAULTS.replicas;
  full.priority ??= DEFAULTS.priority;
  full.resources ??= create(ResourcesSchema);
  full.resources.requests ??= create(ResourceListSchema);
  const { requests, limits } = full.resources;
  requests.cpuMillis ??= atMostLimit<number>(DEFAULTS.cpuMillis, limits?.cpuMillis);
  requests.memoryBytes ??= atMostLimit<bigint>(DEFAULTS.memoryBytes, limits?.memoryBytes);
  full.placement ??= create(PlacementSchema);
  fillPlacement(full.placement);
  full.restart ??= create(RestartPolicySchema);
  if (full.restart.policy === RestartPolicy_Policy.ON_FAILURE)
    full.restart.maxRetries ??= DEFAULTS.onFailureMaxRetries;
  full.terminationGracePeriod ??= durationFromMs(DEFAULTS.terminationGraceMs);
  full.preStopDelay ??= durationFromMs(full.ports.length > 0 ? DEFAULTS.preStopDelayMs : 0);
  for (const port of full.ports) port.name = portNameOf(port);
  full.rollout ??= create(RolloutSchema);
  full.rollout.maxSurge ??= DEFAULTS.maxSurge;
  full.rollout.maxUnavailable ??= DEFAULTS.maxUnavailable;
  full.rollout.minReadyDuration ??= durationFromMs(DEFAULTS.minReadyMs);
  full.rollout.progressDeadline ??= durationFromMs(DEFAULTS.progressDeadlineMs);
  full.rollout.maxFailedNew ??= DEFAULTS.maxFailedNew;
  full.rollout.pauseDuration ??= durationFromMs(DEFAULTS.pauseMs);
  full.disconnect ??= create(DisconnectSchema);
  fillDisconnect(full.disconnect);
  for (const probe of [full.livenessProbe, full.readinessProbe, full.startupProbe]) {
    if (probe !== undefined) fillProbe(probe);
  }
  return full;
}

/** A limit of 0 is none. */
function atMostLimit<Amount extends number | bigint>(
  request: Amount,
  limit: Amount | undefined,
): Amount {
  return limit !== undefined && limit > 0 && limit < request ? limit : request;
}

function fillPlacement({ spread, affinity, antiAffinity }: Placement): void {
  if (spread?.maxSkew === 0) spread.maxSkew = DEFAULTS.maxSkew;
  for (const term of [...(affinity?.workloads ?? []), ...(antiAffinity?.workloads ?? [])]) {
    if (term.topology === '') term.topology = DEFAULTS.topology;
  }
}

function fillProbe(probe: Probe): void {
  probe.initialDelay ??= durationFromMs(DEFAULTS.probeInitialDelayMs);
  probe.period ??= durationFromMs(DEFAULTS.probePeriodMs);
  probe.timeout ??= durationFromMs(DEFAULTS.probeTimeoutMs);
  if (probe.successThreshold === 0) probe.successThreshold = DEFAULTS.probeSuccessThreshold;
  if (probe.failureThreshold === 0) probe.failureThreshold = DEFAULTS.probeFailureThreshold;
  if (probe.check.case === 'http' && probe.check.value.path === '')
    probe.check.value.path = DEFAULTS.probePath;
}

/** What a workload wants of replicas whose node is cut off, milliseconds. */
export interface DisconnectTimes {
  /** Without contact for so long an exclusive replica stops itself; absent: it runs on. */
  readonly stopAfterMs?: number;
  /** From the end of its node's lease to its replacement. */
  readonly lostAfterMs: number;
}

/** The disconnect part of a spec, with its defaults. */
export function disconnectTimesOf(
  spec: Pick<WorkloadSpec, 'disconnect'> | undefined,
): DisconnectTimes {
  const disconnect =
    spec?.disconnect === undefined
      ? create(DisconnectSchema)
      : clone(DisconnectSchema, spec.disconnect);
  fillDisconnect(disconnect);
  const { mode, stopAfter, lostAfter } = disconnect;
  return {
    lostAfterMs: lostAfter === undefined ? DEFAULTS.lostAfterMs : durationMs(lostAfter),
    ...(mode === Disconnect_Mode.EXCLUSIVE && stopAfter !== undefined
      ? { stopAfterMs: durationMs(stopAfter) }
      : {}),
  };
}

/** Exclusive replicas are given twice the time in which they stop themselves. */
function fillDisconnect(disconnect: Disconnect): void {
  disconnect.stopAfter ??= durationFromMs(DEFAULTS.stopAfterMs);
  const exclusive = disconnect.mode === Disconnect_Mode.EXCLUSIVE;
  disconnect.lostAfter ??= durationFromMs(
    exclusive ? 2 * durationMs(disconnect.stopAfter) : DEFAULTS.lostAfterMs,
  );
}
