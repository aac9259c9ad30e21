import { durationMs } from '@bufbuild/protobuf/wkt';
import {
  DEFAULTS,
  Port_Protocol,
  RestartPolicy_Policy,
  resolvePortName,
  withDefaults,
  type Order,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { ContainerKind } from '@cloudless/runtime';
import { toProbeSchedules, type ProbeSchedules } from '../probes/probe-schedule.js';
import { usesFiles } from '../files/file-refs.js';
import { requireStart } from '../container/to-container-request.js';

/**
 * How an agent supervises a replica: restart policy, probes and delays. Read from the start order.
 */
export interface ReplicaTarget {
  readonly restart: 'always' | 'onFailure' | 'never';
  /** Consecutive restarts before the replica fails; Infinity: no limit. */
  readonly maxRetries: number;
  /**
   * Names of the TCP ports that must accept a connection before the replica is ready. Ignored when
   * the replica has a readiness probe.
   */
  readonly tcpPorts: readonly string[];
  readonly probes: ProbeSchedules;
  /** Time between the removal from the endpoints and SIGTERM, milliseconds. */
  readonly preStopMs: number;
  /** Time between SIGTERM and SIGKILL, milliseconds. */
  readonly graceMs: number;
  /** True when the replica runs an image, which may have to be pulled. */
  readonly usesImage: boolean;
  /** True when the replica uses secrets or configs, which the agent provides before a start. */
  readonly usesFiles: boolean;
  /** Name of the runtime that the spec requires; empty: any. */
  readonly runtime: string;
  /**
   * Set for an exclusive replica: its container ends after this time without contact with a
   * coordinator, milliseconds.
   */
  readonly stopAfterMs?: number;
}

const RESTART: Record<RestartPolicy_Policy, ReplicaTarget['restart']> = {
  [RestartPolicy_Policy.ALWAYS]: 'always',
  [RestartPolicy_Policy.ON_FAILURE]: 'onFailure',
  [RestartPolicy_Policy.NEVER]: 'never',
};

/**
 * Reads a start order and fills in defaults.
 * @throws kind `invalid` when the order is not a start order or has no spec.
 */
export function toReplicaTarget(order: Order): ReplicaTarget {
  const { start, spec: orderedSpec } = requireStart(order);
  const spec = withDefaults(orderedSpec);
  const policy = spec.restart?.policy ?? RestartPolicy_Policy.ALWAYS;
  return {
    restart: RESTART[policy] ?? 'always',
    maxRetries: spec.restart?.maxRetries ?? Number.POSITIVE_INFINITY,
    probes: toProbeSchedules(spec),
    tcpPorts: spec.ports
      .filter(({ protocol }) => protocol === Port_Protocol.TCP)
      .map(resolvePortName),
    preStopMs: spec.preStopDelay === undefined ? 0 : durationMs(spec.preStopDelay),
    graceMs:
      spec.terminationGracePeriod === undefined
        ? DEFAULTS.terminationGraceMs
        : durationMs(spec.terminationGracePeriod),
    usesImage: spec.image !== '',
    usesFiles: usesFiles(spec),
    runtime: spec.runtime,
    ...(start.stopAfter === undefined ? {} : { stopAfterMs: durationMs(start.stopAfter) }),
  };
}

/**
 * Creates the error for a call that waits for the runtime of a replica.
 * @param usesImage - As in {@link mayBeMissing}.
 * @param missing - Kinds that are not listed; read when `usesImage` is undefined.
 */
export function createRuntimeSilentError(
  usesImage: boolean | undefined,
  missing: readonly ContainerKind[] = [],
): CloudlessError {
  const needsContainers = usesImage ?? missing.includes('container');
  const name = needsContainers ? 'container runtime' : 'supervisor of processes';
  return new CloudlessError('unavailable', `the ${name} does not answer`);
}

/**
 * Returns true when the containers of a replica may be missing in a list of containers.
 * @param usesImage - False for a plain process; undefined when it is not known.
 * @param missing - Kinds that are not listed.
 */
export function mayBeMissing(
  usesImage: boolean | undefined,
  missing: readonly ContainerKind[],
): boolean {
  if (usesImage === undefined) return missing.length > 0;
  return missing.includes(usesImage ? 'container' : 'process');
}
