import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { toTargetFields } from '../../names.js';
import type { ReplicaTarget } from '../../names.js';
import { formatCount } from '../../output/human.js';
import { parseWholeNumber } from '../../flags/spec-flags.js';
import { getTextOption } from '../options.js';
import { listSelectedWorkloads } from '../workload/select-workloads.js';
import { resolveReplicaTarget } from './resolve-target.js';

/**
 * Largest number of replicas whose logs a command with several targets reads at once, without
 * `--max-replicas`. More logs than that are hard to read, and each takes memory on its node.
 */
const DEFAULT_MAX_REPLICAS = 64;

/** A log to read. */
export interface LogSource {
  /** Fields of the request that select the log. */
  readonly request: ReturnType<typeof toTargetFields>;
  /** Name of the workload in the prefixes; absent for a replica or container. */
  readonly workload?: string;
}

/** The logs that a command reads. */
export interface LogSources {
  readonly sources: readonly LogSource[];
  /** True when several replicas write, so that all lines are prefixed with their replica. */
  readonly prefixes: boolean;
}

/**
 * Returns the logs that the operands or `--selector` name.
 * @throws {@link CliFailure} with exit code 2 when several targets have more replicas than
 *   `--max-replicas`, with exit code 3 when no workload has the labels.
 */
export async function findLogSources(invocation: Invocation): Promise<LogSources> {
  const { session, operands } = invocation;
  const selector = getTextOption(invocation, 'selector');
  const maxReplicas = readMaxReplicas(invocation);
  if (selector !== undefined) {
    if (operands.length > 0)
      throw createUsageFailure(
        `give targets or -l, not both: remove ${operands.join(' ')} or -l ${selector}`,
      );
    const workloads = await listSelectedWorkloads(session, selector);
    return toSources(workloads.map(toWorkloadTarget), workloads, maxReplicas);
  }
  if (operands.length === 0)
    throw createUsageFailure(
      'give a workload, a replica or a container, or select workloads with -l',
    );
  const targets: ReplicaTarget[] = [];
  for (const text of new Set(operands)) targets.push(await resolveReplicaTarget(session, text));
  const workloads: Workload[] = [];
  for (const target of targets) {
    if (target.kind === 'workload' && (targets.length > 1 || !session.isStructured))
      workloads.push(await session.client.getWorkload(target.workload, session.getCallOptions()));
  }
  return toSources(targets, workloads, maxReplicas);
}

/** @param workloads - The workloads among the targets, as far as their replicas must be counted. */
function toSources(
  targets: readonly ReplicaTarget[],
  workloads: readonly Workload[],
  maxReplicas: number,
): LogSources {
  const others = targets.filter(({ kind }) => kind !== 'workload').length;
  const replicas = workloads.map(countReplicas).reduce((sum, count) => sum + count, others);
  if (targets.length > 1 && replicas > maxReplicas) {
    throw createUsageFailure(
      `${formatCount(targets.length, 'target')} with ${formatCount(replicas, 'replica')}: ` +
        `at most ${maxReplicas} logs are read at once; select fewer, or allow more with --max-replicas ${replicas}`,
    );
  }
  const namespaces = new Set(
    targets.flatMap((target) => (target.kind === 'workload' ? target.workload.namespace : [])),
  );
  const sources = targets.map((target): LogSource => {
    const request = toTargetFields(target);
    if (target.kind !== 'workload') return { request };
    const { namespace, name } = target.workload;
    return { request, workload: namespaces.size > 1 ? `${namespace}/${name}` : name };
  });
  return { sources, prefixes: workloads.length > 0 && replicas > 1 };
}

const toWorkloadTarget = ({ namespace, name }: Workload): ReplicaTarget => ({
  kind: 'workload',
  workload: { namespace, name },
});

const countReplicas = ({ status }: Workload): number =>
  Math.max(status?.desiredReplicas ?? 0, status?.totalReplicas ?? 0);

function readMaxReplicas(invocation: Invocation): number {
  const text = getTextOption(invocation, 'maxReplicas');
  return text === undefined ? DEFAULT_MAX_REPLICAS : parseWholeNumber('--max-replicas', text);
}
