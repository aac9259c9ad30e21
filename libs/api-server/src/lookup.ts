import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, resolveNamespace, type WorkloadSpec } from '@cloudless/api';
import type { VersionRecord, WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { checkGeneration } from './generation.js';

/** The fields by which a request names a workload. */
export interface WorkloadName {
  readonly namespace: string;
  readonly name: string;
}

/**
 * Returns the workload that a request names. An empty namespace means `default`.
 * @throws kind `notFound` when there is no such workload.
 */
export function requireWorkload(view: ClusterView, request: WorkloadName): Stored<WorkloadRecord> {
  const namespace = resolveNamespace(request);
  const workload = view.workloadByName(namespace, request.name);
  if (workload !== undefined) return workload;
  throw new CloudlessError(
    'WORKLOAD_NOT_FOUND',
    `workload "${namespace}/${request.name}" not found`,
  );
}

/**
 * Returns the workload that a request names and may change.
 * @throws kind `notFound` when there is no such workload, `precondition` while it is being deleted,
 *   `conflict` when its generation is not the expected one.
 */
export function requireMutableWorkload(
  view: ClusterView,
  request: WorkloadName & { readonly expectedGeneration?: bigint | undefined },
): Stored<WorkloadRecord> {
  const current = requireWorkload(view, request);
  if (current.value.deletionRequestedAt !== undefined) throw createDeletingError(current.value);
  checkWorkloadGeneration(current.value, request.expectedGeneration);
  return current;
}

/**
 * Checks the generation of a workload that a client expects.
 * @param expected - Undefined: any generation.
 * @throws kind `conflict` when the workload has another generation.
 */
export function checkWorkloadGeneration(
  { namespace, name, generation }: WorkloadRecord,
  expected: bigint | undefined,
): void {
  checkGeneration({ kind: 'workload', name: `${namespace}/${name}`, generation }, expected);
}

/** Creates the error for a change of a workload that is being deleted. */
export function createDeletingError({ namespace, name }: WorkloadName): CloudlessError {
  return new CloudlessError(
    'WORKLOAD_DELETING',
    `workload "${namespace}/${name}" is being deleted`,
  );
}

/** Returns the spec of a workload; an empty spec when the record has none. */
export function getSpec({ spec }: WorkloadRecord): WorkloadSpec {
  return spec ?? create(WorkloadSpecSchema);
}

/** @throws kind `notFound` when the version is not stored. */
export function requireVersion(
  view: ClusterView,
  workload: WorkloadRecord,
  version: number,
): VersionRecord {
  const storedVersion = view.version(workload.uid, version);
  if (storedVersion !== undefined) return storedVersion;
  const numbers = view.versions(workload.uid).map((known) => known.version);
  throw new CloudlessError(
    'VERSION_NOT_FOUND',
    `workload "${workload.namespace}/${workload.name}" has no version ${version}; the kept versions are ${numbers.join(', ')}`,
  );
}
