import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import { definedFields } from '@cloudless/base';
import {
  DEFAULTS,
  resolvePortName,
  findProbePort,
  type Port,
  type Probe,
  type WorkloadSpec,
} from '@cloudless/api';

/** One kind of check. Ports are names of declared ports. */
export type ProbeCheck =
  | { readonly kind: 'exec'; readonly command: readonly string[] }
  | {
      readonly kind: 'http';
      readonly portName: string;
      readonly path: string;
      readonly headers: Readonly<Record<string, string>>;
    }
  | { readonly kind: 'tcp'; readonly portName: string }
  | { readonly kind: 'grpc'; readonly portName: string; readonly service: string };

/** A check with its timing and thresholds. Times in milliseconds. */
export interface ProbeSchedule {
  readonly check: ProbeCheck;
  /** Time from the start of the container to the first check. */
  readonly initialDelayMs: number;
  /** Time from the start of one check to the start of the next check. */
  readonly periodMs: number;
  /** Time after which a check counts as failed. */
  readonly timeoutMs: number;
  /** Consecutive passed checks after which the probe passes. */
  readonly successThreshold: number;
  /** Consecutive failed checks after which the probe fails. */
  readonly failureThreshold: number;
}

/** Probes of a replica; a probe that is absent is not made. */
export interface ProbeSchedules {
  readonly liveness?: ProbeSchedule;
  readonly readiness?: ProbeSchedule;
  readonly startup?: ProbeSchedule;
}

/**
 * Converts the probes of a spec whose defaults are filled in. Leaves out a probe whose kind of
 * check this agent does not support.
 */
export function toProbeSchedules({
  livenessProbe,
  readinessProbe,
  startupProbe,
  ports,
}: WorkloadSpec): ProbeSchedules {
  const [liveness, readiness, startup] = [livenessProbe, readinessProbe, startupProbe].map(
    (probe) => (probe === undefined ? undefined : toProbeSchedule(probe, ports)),
  );
  return {
    ...definedFields({ liveness, readiness, startup }),
  };
}

function toProbeSchedule(probe: Probe, ports: readonly Port[]): ProbeSchedule | undefined {
  const check = toCheck(probe.check, ports);
  if (check === undefined) return undefined;
  return {
    check,
    initialDelayMs: toMs(probe.initialDelay, DEFAULTS.probeInitialDelayMs),
    periodMs: toMs(probe.period, DEFAULTS.probePeriodMs),
    timeoutMs: toMs(probe.timeout, DEFAULTS.probeTimeoutMs),
    successThreshold: probe.successThreshold,
    failureThreshold: probe.failureThreshold,
  };
}

function toCheck(check: Probe['check'], ports: readonly Port[]): ProbeCheck | undefined {
  const toPortName = (text: string): string => {
    const port = findProbePort(ports, text);
    return port === undefined ? text : resolvePortName(port);
  };
  switch (check.case) {
    case 'exec':
      return { kind: 'exec', command: check.value.command };
    case 'http':
      return {
        kind: 'http',
        portName: toPortName(check.value.port),
        path: check.value.path,
        headers: check.value.headers,
      };
    case 'tcp':
      return { kind: 'tcp', portName: toPortName(check.value.port) };
    case 'grpc':
      return { kind: 'grpc', portName: toPortName(check.value.port), service: check.value.service };
    default:
      return undefined;
  }
}

function toMs(duration: Duration | undefined, defaultMs: number): number {
  return duration === undefined ? defaultMs : durationMs(duration);
}
