import { clone, create, equals } from '@bufbuild/protobuf';
import {
  WorkloadSpecSchema,
  checkSameMode,
  checkScalable,
  checkSpec,
  resolveNamespace,
  checkSupported,
  updateSpec,
  type PlanWorkloadRequest,
  type ScaleWorkloadRequest,
  type UpdateWorkloadRequest,
  type WorkloadSpec,
} from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError, errorMessageOf } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import { compileGate } from '@cloudless/policy';
import type { ApiServerDeps } from '../ports.js';
import {
  requireMutableWorkload,
  createDeletingError,
  getSpec,
  type WorkloadName,
} from '../lookup.js';
import { checkExposable } from '../network/exposed-service.js';
import { type WorkloadChange } from './workload-change.js';

type SpecCheckDeps = Pick<ApiServerDeps, 'explainImpossibleLimits'>;

/**
 * Plans the creation of a workload.
 * @throws kind `exists` when the workload exists, `invalid` or `unimplemented` for its spec.
 */
export function planCreate(
  deps: SpecCheckDeps,
  view: ClusterView,
  request: WorkloadName & { readonly spec?: WorkloadSpec | undefined },
): WorkloadChange {
  const namespace = resolveNamespace(request);
  const spec = validateSpec(deps, request.spec);
  const existing = view.workloadByName(namespace, request.name);
  if (existing !== undefined) throw createExistsError(existing.value);
  checkExposable(view, { namespace, name: request.name, uid: '' }, spec);
  return { namespace, name: request.name, current: undefined, spec, reason: 'WorkloadCreated' };
}

/**
 * Plans an update of a workload.
 * @throws the errors of {@link requireMutableWorkload}; kind `invalid` or `unimplemented` for the
 *   resulting spec.
 */
export function planUpdate(
  deps: SpecCheckDeps,
  view: ClusterView,
  request: UpdateWorkloadRequest,
): WorkloadChange {
  const current = requireMutableWorkload(view, request);
  const { namespace, name } = current.value;
  const before = getSpec(current.value);
  const spec = updateSpec(before, specOrDefault(request.spec), request.updateMask?.paths);
  checkSameMode(before, spec);
  const checked = equals(WorkloadSpecSchema, spec, before) ? spec : validateSpec(deps, spec);
  checkExposable(view, current.value, checked);
  return { namespace, name, current, spec: checked, reason: 'WorkloadUpdated' };
}

/**
 * Plans the creation of a workload, or its update when it exists.
 * @throws kind `precondition` while the workload is being deleted; `invalid` or `unimplemented` for
 *   the resulting spec.
 */
export function planApply(
  deps: SpecCheckDeps,
  view: ClusterView,
  request: PlanWorkloadRequest,
): WorkloadChange {
  const current = view.workloadByName(resolveNamespace(request), request.name);
  if (current === undefined) return planCreate(deps, view, request);
  if (current.value.deletionRequestedAt !== undefined) throw createDeletingError(current.value);
  const { namespace, name } = current.value;
  const spec = updateSpec(
    getSpec(current.value),
    specOrDefault(request.spec),
    request.updateMask?.paths,
  );
  checkSameMode(getSpec(current.value), spec);
  checkExposable(view, current.value, spec);
  return { namespace, name, current, spec: validateSpec(deps, spec), reason: 'WorkloadUpdated' };
}

/**
 * Plans a change of the replica count.
 * @throws the errors of {@link requireMutableWorkload}, and of `checkScalable` for a GLOBAL
 *   workload.
 */
export function planScale(view: ClusterView, request: ScaleWorkloadRequest): WorkloadChange {
  const current = requireMutableWorkload(view, request);
  const { namespace, name } = current.value;
  checkScalable(getSpec(current.value));
  const replicas = request.replicas ?? 0;
  const spec = Object.assign(clone(WorkloadSpecSchema, getSpec(current.value)), { replicas });
  return { namespace, name, current, spec, reason: 'WorkloadScaled' };
}

/**
 * Checks a spec.
 * @param spec - Undefined: an empty spec is checked.
 * @returns The spec, unchanged.
 * @throws kind `invalid` when the spec violates a rule, or its rollout limits permit no step;
 *   `unimplemented` when the spec uses a field that is not built yet.
 */
export function validateSpec(
  { explainImpossibleLimits }: SpecCheckDeps,
  spec: WorkloadSpec | undefined,
): WorkloadSpec {
  const checked = specOrDefault(spec);
  checkSpec(checked);
  checkSupported(checked);
  checkGates(checked);
  const impossible = checked.rollout?.maxSurge === 0 ? explainImpossibleLimits(checked) : undefined;
  if (impossible !== undefined)
    throw new InvalidInputError([{ field: 'spec.rollout', message: impossible }]);
  return checked;
}

/** @throws kind `invalid`, with the path of each gate that cannot be used, and why. */
function checkGates({ rollout }: WorkloadSpec): void {
  const violations = (rollout?.steps ?? []).flatMap(({ gate }, index) => {
    if (gate === '') return [];
    try {
      compileGate(gate);
      return [];
    } catch (reason) {
      return [{ field: `spec.rollout.steps[${index}].gate`, message: errorMessageOf(reason) }];
    }
  });
  if (violations.length > 0) throw new InvalidInputError(violations);
}

function specOrDefault(spec: WorkloadSpec | undefined): WorkloadSpec {
  return spec ?? create(WorkloadSpecSchema);
}

function createExistsError({
  namespace,
  name,
  deletionRequestedAt,
}: WorkloadRecord): CloudlessError {
  const hint =
    deletionRequestedAt === undefined
      ? 'already exists; update it, or choose another name'
      : 'is being deleted; wait until it is gone';
  return new CloudlessError('WORKLOAD_EXISTS', `workload "${namespace}/${name}" ${hint}`);
}
