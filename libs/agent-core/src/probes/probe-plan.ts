import { durationMs, type Duration } from '@bufbuild/protobuf/wkt';
import {
  DEFAULTS,
  portNameOf,
  portOfProbe,
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
export interface ProbePlan {
  readonly check: ProbeCheck;
  /** From the start of the container to the first check. */
  readonly initialDelayMs: number;
  /** From the start of one check to the start of the next. */
  readonly periodMs: number;
  readonly timeoutMs: number;
  readonly successThreshold: number;
  readonly failureThreshold: number;
}

/** Probes of a replica; a probe that is absent is not made. */
export interface ProbePlans {
  readonly liveness?: ProbePlan;
  readonly readiness?: ProbePlan;
  readonly startup?: ProbePlan;
}

/**
 * Converts the probes of a spec whose defaults are filled in. Leaves out a probe whose kind of
 * check this agent does not know.
 */
export function toProbePlans({
  livenessProbe,
  readinessProbe,
  startupProbe,
  ports,
}: WorkloadSpec): ProbePlans {
  const [liveness, readiness, startup] = [livenessProbe, readinessProbe, startupProbe].map(
    (probe) => (probe === undefined ? undefined : toProbePlan(probe, ports)),
  );
  return {
    ...(liveness === undefined ? {} : { liveness }),
    ...(readiness === undefined ? {} : { readiness }),
    ...(startup === undefined ? {} : { startup }),
  };
}

function toProbePlan(probe: Probe, ports: readonly Port[]): ProbePlan | undefined {
  const check = toCheck(probe.check, ports);
  if (check === undefined) return undefined;
  return {
    check,
    initialDelayMs: msOr(probe.initialDelay, DEFAULTS.probeInitialDelayMs),
    periodMs: msOr(probe.period, DEFAULTS.probePeriodMs),
    timeoutMs: msOr(probe.timeout, DEFAULTS.probeTimeoutMs),
    successThreshold: probe.successThreshold,
    failureThreshold: probe.failureThreshold,
  };
}

function toCheck(check: Probe['check'], ports: readonly Port[]): ProbeCheck | undefined {
  const nameOf = (text: string): string => {
    const port = portOfProbe(ports, text);
    return port === undefined ? text : portNameOf(port);
  };
  switch (check.case) {
    case 'exec':
      return { kind: 'exec', command: check.value.command };
    case 'http':
      return {
        kind: 'http',
        portName: nameOf(check.value.port),
        path: check.value.path,
        headers: check.value.headers,
      };
    case 'tcp':
      return { kind: 'tcp', portName: nameOf(check.value.port) };
    case 'grpc':
      return { kind: 'grpc', portName: nameOf(check.value.port), service: check.value.service };
    default:
      return undefined;
  }
}

function msOr(duration: Duration | undefined, otherwise: number): number {
  return duration === undefined ? otherwise : durationMs(duration);
}
