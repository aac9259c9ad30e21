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

/**
 * How an agent supervises a replica: restart policy, probes and delays. Read from the start order.
 */
export interface ReplicaPlan {
  readonly restart: 'always' | 'onFailure' | 'never';
  /** Consecutive restarts before the replica fails; Infinity: no limit. */
  readonly maxRetries: number;
  /**
   * Names of the TCP ports that must accept a connection before the replica is ready. Ignored when
   * the replica has a readiness probe.
   */
  readonly tcpPorts: readonly string[];
  readonly probes: ProbePlans;
  /** Time between the removal from the endpoints and SIGTERM, milliseconds. */
  readonly preStopMs: number;
  /** Time between SIGTERM and SIGKILL, milliseconds. */
  readonly graceMs: number;
  /** True when the replica runs an image, which may have to be pulled. */
  readonly image: boolean;
  /** Name of the runtime that the spec requires; empty: any. */
  readonly runtime: string;
  /**
   * Set for an exclusive replica: its container ends after this time without contact with a
   * coordinator, milliseconds.
   */
  readonly stopAfterMs?: number;
}

const RESTART: Record<RestartPolicy_Policy, ReplicaPlan['restart']> = {
  [RestartPolicy_Policy.ALWAYS]: 'always',
  [RestartPolicy_Policy.ON_FAILURE]: 'onFailure',
  [RestartPolicy_Policy.NEVER]: 'never',
};

/**
 * Reads a start order and fills in defaults. @throws kind `invalid` when the order is not a start
 * order or has no spec.
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
