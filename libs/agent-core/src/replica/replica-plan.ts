import { durationMs } from '@bufbuild/protobuf/wkt';
import {
  DEFAULTS,
  Port_Protocol,
  RestartPolicy_Policy,
  portNameOf,
  withDefaults,
  type Order,
} from '@cloudless/api';
import { toProbePlans, type ProbePlans } from '../probes/probe-plan.js';
import { startOf } from './to-container-request.js';

/** What an agent does with a replica beside starting its container. */
export interface ReplicaPlan {
  readonly restart: 'always' | 'onFailure' | 'never';
  /** Restarts in a row before the replica has failed; Infinity without a limit. */
  readonly maxRetries: number;
  /**
   * Names of the ports that must accept a connection before the replica is ready, unless it has a
   * readiness probe.
   */
  readonly tcpPorts: readonly string[];
  readonly probes: ProbePlans;
  /** Between leaving the endpoints and SIGTERM, milliseconds. */
  readonly preStopMs: number;
  /** Between SIGTERM and SIGKILL, milliseconds. */
  readonly graceMs: number;
  /** It runs an image, which may have to be fetched. */
  readonly image: boolean;
  /** The runtime that the spec asks for; empty when it leaves the choice open. */
  readonly runtime: string;
  /**
   * Exclusive: without contact with a coordinator for so long it stops itself, milliseconds.
   * Absent: it runs on.
   */
  readonly stopAfterMs?: number;
}

const RESTART: Record<RestartPolicy_Policy, ReplicaPlan['restart']> = {
  [RestartPolicy_Policy.ALWAYS]: 'always',
  [RestartPolicy_Policy.ON_FAILURE]: 'onFailure',
  [RestartPolicy_Policy.NEVER]: 'never',
};

/**
 * Reads a start order. Fields that are absent have their defaults. @throws kind `invalid` when the
 * order starts nothing.
 */
export function toReplicaPlan(order: Order): ReplicaPlan {
  const { start, spec: given } = startOf(order);
  const spec = withDefaults(given);
  const policy = spec.restart?.policy ?? RestartPolicy_Policy.ALWAYS;
  return {
    restart: RESTART[policy] ?? 'always',
    maxRetries: spec.restart?.maxRetries ?? Number.POSITIVE_INFINITY,
    probes: toProbePlans(spec),
    tcpPorts: spec.ports.filter(({ protocol }) => protocol === Port_Protocol.TCP).map(portNameOf),
    preStopMs: spec.preStopDelay === undefined ? 0 : durationMs(spec.preStopDelay),
    graceMs:
      spec.terminationGracePeriod === undefined
        ? DEFAULTS.terminationGraceMs
        : durationMs(spec.terminationGracePeriod),
    image: spec.image !== '',
    runtime: spec.runtime,
    ...(start.stopAfter === undefined ? {} : { stopAfterMs: durationMs(start.stopAfter) }),
  };
}
