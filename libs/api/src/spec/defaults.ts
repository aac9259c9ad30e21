import { create } from '@bufbuild/protobuf';
import { durationFromMs, durationMs } from '@bufbuild/protobuf/wkt';
import {
  DisconnectSchema,
  Disconnect_Mode,
  ResourceListSchema,
  ResourcesSchema,
  RestartPolicySchema,
  RestartPolicy_Policy,
  RolloutSchema,
  PlacementSchema,
  type Disconnect,
  type Placement,
  type Probe,
  type WorkloadSpec,
} from '../gen.js';

import { copyMessage } from '../wire/copy-message.js';
import { fillFiles } from './files-rules.js';

/** Defaults of absent fields of specs and requests, and the limit of the page size. */
export const DEFAULTS = {
  replicas: 1,
  priority: 50,
  /** Requests of CPU and memory. A lower limit replaces the default request. */
  cpuMillis: 100,
  memoryBytes: 64n * 1024n * 1024n,
  terminationGraceMs: 10_000,
  /** The delay for a spec with declared ports; without ports, the delay is 0. */
  preStopDelayMs: 1_000,
  maxSurge: 1,
  maxUnavailable: 0,
  minReadyMs: 2_000,
  progressDeadlineMs: 600_000,
  maxFailedNew: 3,
  /** The limit with policy ON_FAILURE; the other policies have no limit. */
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

/** Returns the namespace of a request: `default` when the field is empty. */
export function resolveNamespace(request: { readonly namespace: string }): string {
  return request.namespace === '' ? DEFAULTS.namespace : request.namespace;
}

/** Returns the name of a port: `port-<number>` when the field is empty. */
export function resolvePortName(port: {
  readonly name: string;
  readonly containerPort: number;
}): string {
  return port.name === '' ? `port-${port.containerPort}` : port.name;
}

/**
 * Returns a copy of the spec with a default in every absent field. Two fields stay absent:
 * `min_available`, whose default depends on the replica count, and `max_retries` where there is no
 * limit. Idempotent.
 * @param spec - With all of its fields, as `create` or a decoder of protobuf returns it.
 */
export function withDefaults(spec: WorkloadSpec): WorkloadSpec {
  const full = copyMessage(spec);
  full.replicas ??= DEFAULTS.replicas;
  full.priority ??= DEFAULTS.priority;
  full.resources ??= create(ResourcesSchema);
  full.resources.requests ??= create(ResourceListSchema);
  const { requests, limits } = full.resources;
  requests.cpuMillis ??= capAtLimit<number>(DEFAULTS.cpuMillis, limits?.cpuMillis);
  requests.memoryBytes ??= capAtLimit<bigint>(DEFAULTS.memoryBytes, limits?.memoryBytes);
  full.placement ??= create(PlacementSchema);
  fillPlacement(full.placement);
  fillFiles(full);
  full.restart ??= create(RestartPolicySchema);
  if (full.restart.policy === RestartPolicy_Policy.ON_FAILURE)
    full.restart.maxRetries ??= DEFAULTS.onFailureMaxRetries;
  full.terminationGracePeriod ??= durationFromMs(DEFAULTS.terminationGraceMs);
  full.preStopDelay ??= durationFromMs(full.ports.length > 0 ? DEFAULTS.preStopDelayMs : 0);
  for (const port of full.ports) port.name = resolvePortName(port);
  full.rollout ??= create(RolloutSchema);
  full.rollout.maxSurge ??= DEFAULTS.maxSurge;
  full.rollout.maxUnavailable ??= DEFAULTS.maxUnavailable;
  full.rollout.minReadyDuration ??= durationFromMs(DEFAULTS.minReadyMs);
  full.rollout.progressDeadline ??= durationFromMs(DEFAULTS.progressDeadlineMs);
  if (full.rollout.maxFailedNewPercent === undefined)
    full.rollout.maxFailedNew ??= DEFAULTS.maxFailedNew;
  full.rollout.pauseDuration ??= durationFromMs(DEFAULTS.pauseMs);
  full.disconnect ??= create(DisconnectSchema);
  fillDisconnect(full.disconnect);
  for (const probe of [full.livenessProbe, full.readinessProbe, full.startupProbe]) {
    if (probe !== undefined) fillProbe(probe);
  }
  return full;
}

/** Returns the request, or the limit when that is lower. A limit of 0 means no limit. */
function capAtLimit<Amount extends number | bigint>(
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

/** Effective times of the disconnect policy, milliseconds. */
export interface DisconnectTimes {
  /**
   * Time without contact after which the node stops an EXCLUSIVE replica. Absent with AVAILABLE:
   * the replica goes on running.
   */
  readonly stopAfterMs?: number;
  /** Time from the end of the lease of the node to the replacement. */
  readonly lostAfterMs: number;
}

/** Returns the effective times of the disconnect policy of a spec. */
export function resolveDisconnectTimes(
  spec: Pick<WorkloadSpec, 'disconnect'> | undefined,
): DisconnectTimes {
  const disconnect =
    spec?.disconnect === undefined ? create(DisconnectSchema) : copyMessage(spec.disconnect);
  fillDisconnect(disconnect);
  const { mode, stopAfter, lostAfter } = disconnect;
  return {
    lostAfterMs: lostAfter === undefined ? DEFAULTS.lostAfterMs : durationMs(lostAfter),
    ...(mode === Disconnect_Mode.EXCLUSIVE && stopAfter !== undefined
      ? { stopAfterMs: durationMs(stopAfter) }
      : {}),
  };
}

/**
 * Sets absent times of a disconnect policy, in place. With EXCLUSIVE, the default of `lost_after`
 * is twice `stop_after`, so that the old replica has ended when its replacement starts.
 */
function fillDisconnect(disconnect: Disconnect): void {
  disconnect.stopAfter ??= durationFromMs(DEFAULTS.stopAfterMs);
  const exclusive = disconnect.mode === Disconnect_Mode.EXCLUSIVE;
  disconnect.lostAfter ??= durationFromMs(
    exclusive ? 2 * durationMs(disconnect.stopAfter) : DEFAULTS.lostAfterMs,
  );
}
