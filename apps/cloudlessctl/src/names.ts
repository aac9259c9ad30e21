import { createUsageFailure } from './call/failure.js';
import { DNS_LABEL_RULE, isDnsLabel } from './dns-label.js';

/** Namespace and name of a workload. */
export interface WorkloadName {
  readonly namespace: string;
  readonly name: string;
}

/** Target of `logs`, `exec` and `port-forward`: a workload, a replica or a container. */
export type ReplicaTarget =
  | { readonly kind: 'workload'; readonly workload: WorkloadName }
  | { readonly kind: 'replica'; readonly replicaId: string }
  | { readonly kind: 'container'; readonly containerId: string };

/**
 * Parses `[namespace/]name`.
 * @param noun - Kind of the named object, for the error message.
 * @throws {@link CliFailure} with exit code 2 when one of the names is invalid.
 */
export function parseWorkloadName(
  text: string,
  defaultNamespace: string,
  noun = 'workload',
): WorkloadName {
  const parts = text.split('/');
  const [namespace = '', name = ''] = parts.length === 1 ? [defaultNamespace, text] : parts;
  if (parts.length > 2 || !isDnsLabel(namespace) || !isDnsLabel(name)) {
    throw createUsageFailure(
      `${JSON.stringify(text)} is not a valid ${noun} name: expected [namespace/]name, each ${DNS_LABEL_RULE}`,
    );
  }
  return { namespace, name };
}

/**
 * Parses a container id (12 to 64 hex digits, at least one of them 0 to 9), a replica id
 * (`<uid>-<number>`), each also with its kind before (`replica/<uid>-<number>`), or
 * `[namespace/]name`. Other text with a slash is always a workload name.
 * @throws {@link CliFailure} with exit code 2 for any other text.
 * @example
 * parseReplicaTarget('0123456789ab', 'default') // { kind: 'container', ... }
 */
export function parseReplicaTarget(text: string, defaultNamespace: string): ReplicaTarget {
  const replicaId = text.replace(/^replicas?\//, '');
  if (/^[0-9a-f]{16}-\d+$/.test(replicaId)) return { kind: 'replica', replicaId };
  const containerId = text.replace(/^containers?\//, '');
  if (/^(?=[a-f]*\d)[0-9a-f]{12,64}$/.test(containerId)) return { kind: 'container', containerId };
  return { kind: 'workload', workload: parseWorkloadName(text, defaultNamespace) };
}

/** Returns the request fields that select the target. */
export function toTargetFields(target: ReplicaTarget): {
  readonly containerId?: string;
  readonly replicaId?: string;
  readonly namespace?: string;
  readonly name?: string;
} {
  switch (target.kind) {
    case 'container':
      return { containerId: target.containerId };
    case 'replica':
      return { replicaId: target.replicaId };
    case 'workload':
      return target.workload;
  }
}

/** Returns the number of a replica in its workload: `7` of `<uid>-7`. */
export function getReplicaNumber(replicaId: string): string {
  return replicaId.slice(replicaId.lastIndexOf('-') + 1);
}

/** Formats the name of a workload for messages: `workload default/web`. */
export function formatWorkloadName({ namespace, name }: WorkloadName): string {
  return `workload ${namespace}/${name}`;
}
