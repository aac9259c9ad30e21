import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, resolveNamespace, type WorkloadSpec } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';

/** The fields by which a request names a workload. */
export interface WorkloadName {
  readonly namespace: string;
  readonly name: string;
}

/** Returns the workload that a request names. @throws kind `notFound`. */
export function requireWorkload(view: ClusterView, request: WorkloadName): Stored<WorkloadRecord> {
  const namespace = resolveNamespace(request);
  const workload = view.workloadByName(namespace, request.name);
  if (workload !== undefined) return workload;
  throw new CloudlessError('notFound', `workload "${namespace}/${request.name}" not found`);
}

/**
 * Returns the workload that a request names if it may be changed.
 * @throws kind `notFound`; `precondition` while the workload is being deleted; `conflict` when its
 *   generation is not the expected one.
 */
export function requireMutableWorkload(
  view: ClusterView,
  request: WorkloadName & { readonly expectedGeneration?: bigint | undefined },
): Stored<WorkloadRecord> {
  const current = requireWorkload(view, request);
  if (current.value.deletionRequestedAt !== undefined) throw createDeletingError(current.value);
  checkGeneration(current.value, request.expectedGeneration);
  return current;
}

/**
 * @throws kind `conflict` when the workload does not have the generation that the client expects.
 */
export function checkGeneration(record: WorkloadRecord, expected: bigint | undefined): void {
  if (expected === undefined || expected === record.generation) return;
  throw new CloudlessError(
    'conflict',
    `workload "${record.namespace}/${record.name}" is at generation ${record.generation}, not ${expected}; read the workload again and repeat the change`,
  );
}

export function createDeletingError({ namespace, name }: WorkloadName): CloudlessError {
  return new CloudlessError('precondition', `workload "${namespace}/${name}" is being deleted`);
}

export function getSpec({ spec }: WorkloadRecord): WorkloadSpec {
  return spec ?? create(WorkloadSpecSchema);
}
