import type { WorkloadRecord } from '@cloudless/api/store';
import { toNameKeyId, type ClusterView } from '@cloudless/cluster-state';

/** Returns the key by which lists order workloads. */
export function toNameKey({ namespace, name }: WorkloadRecord): string {
  return toNameKeyId(namespace, name);
}

/**
 * Lists the workloads of a namespace by name, ascending.
 * @param namespace - Empty: all namespaces, ordered by name.
 * @param after - Only workloads after this key. Default: all.
 */
export function* listWorkloadsAfter(
  view: ClusterView,
  namespace: string,
  after: string | undefined,
): Generator<WorkloadRecord, void> {
  const prefix = namespace === '' ? '' : toNameKeyId(namespace, '');
  for (const { value } of view.workloadsByName(
    after === undefined || after < prefix ? prefix : after,
  )) {
    if (namespace !== '' && value.namespace !== namespace) return;
    yield value;
  }
}
