import { usageFailure } from './failure.js';
import { DNS_LABEL_RULE, isDnsLabel } from './manifest/parse-manifest.js';

/** Which workload is meant. */
export interface WorkloadName {
  readonly namespace: string;
  readonly name: string;
}

/** Which output or process is meant: exactly one of the three ways to name it. */
export type ReplicaTarget =
  | { readonly kind: 'workload'; readonly workload: WorkloadName }
  | { readonly kind: 'replica'; readonly replicaId: string }
  | { readonly kind: 'container'; readonly containerId: string };

/** Reads `[namespace/]name`. */
export function parseWorkloadName(text: string, defaultNamespace: string): WorkloadName {
  const parts = text.split('/');
  const [namespace = '', name = ''] = parts.length === 1 ? [defaultNamespace, text] : parts;
  if (parts.length > 2 || !isDnsLabel(namespace) || !isDnsLabel(name)) {
    throw usageFailure(
      `${JSON.stringify(text)} is not the name of a workload: expected [namespace/]name, each ${DNS_LABEL_RULE}`,
    );
  }
  return { namespace, name };
}

/**
 * Reads a container (12 to 64 hex digits, at least one of them a digit), a replica
 * (`<uid>-<number>`) or `[namespace/]name`. With a slash it is always a workload.
 */
export function parseReplicaTarget(text: string, defaultNamespace: string): ReplicaTarget {
  if (/^[0-9a-f]{16}-\d+$/.test(text)) return { kind: 'replica', replicaId: text };
  if (/^(?=[a-f]*\d)[0-9a-f]{12,64}$/.test(text)) return { kind: 'container', containerId: text };
  return { kind: 'workload', workload: parseWorkloadName(text, defaultNamespace) };
}

/** The fields of a request that say which replica is meant. */
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

/** The number of a replica in its workload: `7` of `<uid>-7`. */
export function replicaNumber(replicaId: string): string {
  return replicaId.slice(replicaId.lastIndexOf('-') + 1);
}

/** `workload default/web`. */
export function labelOf({ namespace, name }: WorkloadName): string {
  return `workload ${namespace}/${name}`;
}
