import { clone, create, equals } from '@bufbuild/protobuf';
import {
  WorkloadSpecSchema,
  checkSameMode,
  checkScalable,
  checkSpec,
  namespaceOf,
  refuseUnsupported,
  updateSpec,
  type PlanWorkloadRequest,
  type ScaleWorkloadRequest,
  type UpdateWorkloadRequest,
  type WorkloadSpec,
} from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import type { ApiServerDeps } from './ports.js';
import {
  changeable,
  deletingError,
  specOf,
  type WorkloadChange,
  type WorkloadNaming,
} from './workload-change.js';

type Checks = Pick<ApiServerDeps, 'impossibleLimitsOf'>;

/**
 * Plans the creation of a workload.
 * @throws kind `exists` when the workload exists, `invalid` or `unimplemented` for its spec.
 */
export function createChange(
  deps: Checks,
  view: ClusterView,
  request: WorkloadNaming & { readonly spec?: WorkloadSpec | undefined },
): WorkloadChange {
  const namespace = namespaceOf(request);
  const spec = checkedSpec(deps, request.spec);
  const existing = view.workloadByName(namespace, request.name);
  if (existing !== undefined) throw existsError(existing.value);
  return { namespace, name: request.name, current: undefined, spec, reason: 'WorkloadCreated' };
}

/**
 * Plans an update of a workload.
 * @throws the errors of {@link requireMutableWorkload}; kind `invalid` or `unimplemented` for the
 *   resulting spec.
 */
export function updateChange(
  deps: Checks,
  view: ClusterView,
  request: UpdateWorkloadRequest,
): WorkloadChange {
  const current = changeable(view, request);
  const { namespace, name } = current.value;
  const before = specOf(current.value);
  const spec = updateSpec(before, given(request.spec), request.updateMask?.paths);
  checkSameMode(before, spec);
  const checked = equals(WorkloadSpecSchema, spec, before) ? spec : checkedSpec(deps, spec);
  return { namespace, name, current, spec: checked, reason: 'WorkloadUpdated' };
}

/** Plans the creation of a workload, or its update when it exists. @throws the errors of either. */
export function applyChange(
  deps: Checks,
  view: ClusterView,
  request: PlanWorkloadRequest,
): WorkloadChange {
  const current = view.workloadByName(namespaceOf(request), request.name);
  if (current === undefined) return createChange(deps, view, request);
  if (current.value.deletionRequestedAt !== undefined) throw deletingError(current.value);
  const { namespace, name } = current.value;
  const spec = updateSpec(specOf(current.value), given(request.spec), request.updateMask?.paths);
  checkSameMode(specOf(current.value), spec);
  return { namespace, name, current, spec: checkedSpec(deps, spec), reason: 'WorkloadUpdated' };
}

/** Plans a change of the replica count. @throws the errors of {@link requireMutableWorkload}. */
export function scaleChange(view: ClusterView, request: ScaleWorkloadRequest): WorkloadChange {
  const current = changeable(view, request);
  const { namespace, name } = current.value;
  checkScalable(specOf(current.value));
  const replicas = request.replicas ?? 0;
  const spec = Object.assign(clone(WorkloadSpecSchema, specOf(current.value)), { replicas });
  return { namespace, name, current, spec, reason: 'WorkloadScaled' };
}

/** Returns the spec if it is valid and supported. @throws kind `invalid` or `unimplemented`. */
export function checkedSpec(
  { impossibleLimitsOf }: Checks,
  spec: WorkloadSpec | undefined,
): WorkloadSpec {
  const checked = given(spec);
  checkSpec(checked);
  refuseUnsupported(checked);
  const impossible = checked.rollout?.maxSurge === 0 ? impossibleLimitsOf(checked) : undefined;
  if (impossible !== undefined)
    throw new InvalidInputError([{ field: 'spec.rollout', message: impossible }]);
  return checked;
}

function given(spec: WorkloadSpec | undefined): WorkloadSpec {
  return spec ?? create(WorkloadSpecSchema);
}

function existsError({ namespace, name, deletionRequestedAt }: WorkloadRecord): CloudlessError {
  const hint =
    deletionRequestedAt === undefined
      ? 'already exists; update it, or choose another name'
      : 'is being deleted; wait until it is gone';
  return new CloudlessError('exists', `workload "${namespace}/${name}" ${hint}`);
}
