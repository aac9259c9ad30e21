import { clone, create, equals } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorService,
  Event_Category as Category,
  Event_Severity as Severity,
  ListWorkloadsResponseSchema,
  WorkloadSpecSchema,
  checkSpec,
  matchesLabels,
  namespaceOf,
  pageOf,
  parseLabelSelector,
  refuseUnsupported,
  toTemplate,
  updateSpec,
  type CreateWorkloadRequest,
  type DeleteWorkloadRequest,
  type ExplainWorkloadRequest,
  type ExplainWorkloadResponse,
  type GetWorkloadRequest,
  type ListWorkloadsRequest,
  type ListWorkloadsResponse,
  type PlanWorkloadRequest,
  type ScaleWorkloadRequest,
  type UpdateWorkloadRequest,
  type WatchWorkloadsRequest,
  type WatchWorkloadsResponse,
  type Workload,
  type WorkloadPlan,
  type WorkloadSpec,
} from '@cloudless/api';
import { ControlRecordSchema, VersionRecordSchema, WorkloadRecordSchema, type WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError, randomHex } from '@cloudless/base';
import { nameKeyId, versionKeyId, type ClusterView, type Stored } from '@cloudless/cluster-state';
import type { HandlerContext } from '@connectrpc/connect';
import type { AuditLog } from './audit.js';
import type { ApiServerDeps } from './ports.js';
import { mutate, type Mutation } from './requests.js';
import type { SoftChanges } from './soft-changes.js';
import { watchRecords } from './watch-records.js';
import { workloadSource } from './watch-workloads.js';

const UID_BYTES = 8;

/** The workload calls of CoordinatorService. */
export class WorkloadHandlers {
  constructor(private readonly deps: ApiServerDeps & { readonly soft: SoftChanges; readonly audit: AuditLog }) {}

  createWorkload = (request: CreateWorkloadRequest): Promise<Workload> => {
    const namespace = namespaceOf(request);
    const spec = this.checked(request.spec);
    return mutate(this.deps, CoordinatorService.method.createWorkload, request, (view) => {
      const existing = view.workloadByName(namespace, request.name);
      if (existing !== undefined) throw existsError(existing.value);
      const record = create(WorkloadRecordSchema, {
        uid: randomHex(this.deps.random, UID_BYTES),
        namespace,
        name: request.name,
        spec,
        generation: 1n,
        version: 1,
        createdAt: this.now(),
        requestId: request.requestId,
      });
      const { uid } = record;
      const transaction = this.deps.state
        .transaction()
        .require('name', nameKeyId(namespace, request.name), 'absent')
        .put('name', nameKeyId(namespace, request.name), create(WorkloadRecordSchema, { uid }))
        .put('workload', uid, record)
        .put('version', versionKeyId(uid, 1), this.versionRecord(record))
        .put('control', uid, create(ControlRecordSchema, { uid, nextSequence: 1n }))
        .event({
          ...this.about(record, request.requestId),
          reason: 'WorkloadCreated',
          message: `workload ${namespace}/${request.name} was created`,
        });
      return { result: this.deps.pictures.read(record, true), transaction };
    });
  };

  updateWorkload = (request: UpdateWorkloadRequest): Promise<Workload> =>
    mutate(this.deps, CoordinatorService.method.updateWorkload, request, (view) => {
      const current = this.changeable(view, request);
      const spec = updateSpec(specOf(current.value), specPatch(request.spec), request.updateMask?.paths);
      if (equals(WorkloadSpecSchema, spec, specOf(current.value))) return this.unchanged(current.value);
      return this.change(current, this.checked(spec), request.requestId, 'WorkloadUpdated');
    });

  scaleWorkload = (request: ScaleWorkloadRequest): Promise<Workload> =>
    mutate(this.deps, CoordinatorService.method.scaleWorkload, request, (view) => {
      const current = this.changeable(view, request);
      const replicas = request.replicas ?? 0;
      if (specOf(current.value).replicas === replicas) return this.unchanged(current.value);
      const spec = Object.assign(clone(WorkloadSpecSchema, specOf(current.value)), { replicas });
      return this.change(current, spec, request.requestId, 'WorkloadScaled');
    });

  deleteWorkload = (request: DeleteWorkloadRequest): Promise<Workload> =>
    mutate(this.deps, CoordinatorService.method.deleteWorkload, request, (view) => {
      const current = found(view, request);
      checkGeneration(current.value, request.expectedGeneration);
      if (current.value.deletionRequestedAt !== undefined) return this.unchanged(current.value);
      const record = Object.assign(clone(WorkloadRecordSchema, current.value), {
        deletionRequestedAt: this.now(),
        requestId: request.requestId,
      });
      const transaction = this.deps.state
        .transaction()
        .require('workload', record.uid, current)
        .put('workload', record.uid, record)
        .event({
          ...this.about(record, request.requestId),
          reason: 'WorkloadDeletionRequested',
          message: `deletion of ${record.namespace}/${record.name} was asked for`,
        });
      return { result: this.deps.pictures.read(record, true), transaction };
    });

  getWorkload = (request: GetWorkloadRequest): Workload =>
    this.deps.pictures.read(found(this.deps.state.view(), request).value, true);

  listWorkloads = (request: ListWorkloadsRequest): ListWorkloadsResponse => {
    const selector = parseLabelSelector(request.labelSelector);
    const matching = [...this.deps.state.view().workloads()]
      .map(({ value }) => value)
      .filter((record) => request.namespace === '' || record.namespace === request.namespace)
      .filter((record) => matchesLabels(selector, record.spec?.labels ?? {}))
      .sort((a, b) => (nameKey(a) < nameKey(b) ? -1 : 1));
    const { items, nextPageToken } = pageOf(matching, nameKey, request, {
      filter: ['workloads', request.namespace, request.labelSelector],
    });
    const workloads = items.map((record) => this.deps.pictures.read(record, request.includeReplicas));
    return create(ListWorkloadsResponseSchema, { workloads, nextPageToken, revision: this.deps.state.view().revision });
  };

  watchWorkloads(request: WatchWorkloadsRequest, { signal }: HandlerContext): AsyncGenerator<WatchWorkloadsResponse> {
    return watchRecords(this.deps, workloadSource(this.deps, request), request.afterRevision, signal);
  }

  planWorkload = (request: PlanWorkloadRequest): WorkloadPlan => {
    const namespace = namespaceOf(request);
    const current = this.deps.state.view().workloadByName(namespace, request.name)?.value;
    if (current?.deletionRequestedAt !== undefined) throw deletingError(current);
    const patch = specPatch(request.spec);
    const spec = current === undefined ? patch : updateSpec(specOf(current), patch, request.updateMask?.paths);
    return this.deps.planning.plan({ namespace, name: request.name, current, spec: this.checked(spec) });
  };

  explainWorkload = (request: ExplainWorkloadRequest): ExplainWorkloadResponse =>
    this.deps.planning.explain(found(this.deps.state.view(), request).value);

  /** The spec, if it may be accepted. */
  private checked(spec: WorkloadSpec | undefined): WorkloadSpec {
    const given = specPatch(spec);
    checkSpec(given);
    refuseUnsupported(given);
    const impossible = given.rollout?.maxSurge === 0 ? this.deps.impossibleLimitsOf(given) : undefined;
    if (impossible !== undefined) throw new InvalidInputError([{ field: 'spec.rollout', message: impossible }]);
    return given;
  }

  private change(current: Stored<WorkloadRecord>, spec: WorkloadSpec, requestId: string, reason: string): Mutation<Workload> {
    const newVersion = !equals(WorkloadSpecSchema, toTemplate(specOf(current.value)), toTemplate(spec));
    const record = clone(WorkloadRecordSchema, current.value);
    record.spec = spec;
    record.requestId = requestId;
    record.generation += 1n;
    if (newVersion) record.version += 1;
    const { uid, namespace, name } = record;
    const transaction = this.deps.state.transaction().require('workload', uid, current).put('workload', uid, record);
    if (newVersion) transaction.put('version', versionKeyId(uid, record.version), this.versionRecord(record));
    const what = newVersion ? `is version ${record.version} now` : `wants ${spec.replicas ?? 1} replicas now`;
    transaction.event({
      ...this.about(record, requestId),
      reason,
      message: `workload ${namespace}/${name} ${what} (generation ${record.generation})`,
    });
    return { result: this.deps.pictures.read(record, true), transaction };
  }

  private unchanged(record: WorkloadRecord): Mutation<Workload> {
    return { result: this.deps.pictures.read(record, true) };
  }

  /** The workload, if it may be changed. */
  private changeable(
    view: ClusterView,
    request: { readonly namespace: string; readonly name: string; readonly expectedGeneration?: bigint | undefined },
  ): Stored<WorkloadRecord> {
    const current = found(view, request);
    if (current.value.deletionRequestedAt !== undefined) throw deletingError(current.value);
    checkGeneration(current.value, request.expectedGeneration);
    return current;
  }

  private versionRecord(record: WorkloadRecord) {
    return create(VersionRecordSchema, { version: record.version, template: toTemplate(specOf(record)), createdAt: this.now() });
  }

  private about({ namespace, name }: WorkloadRecord, requestId: string) {
    return { severity: Severity.INFO, category: Category.WORKLOAD, namespace, workload: name, requestId };
  }

  private now() {
    return timestampFromMs(this.deps.clock.wallTime());
  }
}

/** The workload a request names. @throws kind `notFound`. */
export function found(view: ClusterView, request: { readonly namespace: string; readonly name: string }): Stored<WorkloadRecord> {
  const namespace = namespaceOf(request);
  const workload = view.workloadByName(namespace, request.name);
  if (workload !== undefined) return workload;
  throw new CloudlessError('notFound', `workload "${namespace}/${request.name}" not found`);
}

function specOf(record: WorkloadRecord): WorkloadSpec {
  return record.spec ?? create(WorkloadSpecSchema);
}

function specPatch(spec: WorkloadSpec | undefined): WorkloadSpec {
  return spec ?? create(WorkloadSpecSchema);
}

function nameKey({ namespace, name }: WorkloadRecord): string {
  return nameKeyId(namespace, name);
}

function checkGeneration(record: WorkloadRecord, expected: bigint | undefined): void {
  if (expected === undefined || expected === record.generation) return;
  throw new CloudlessError(
    'conflict',
    `workload "${record.namespace}/${record.name}" is at generation ${record.generation}, not ${expected}; read it again and decide anew`,
  );
}

function existsError({ namespace, name, deletionRequestedAt }: WorkloadRecord): CloudlessError {
  const hint =
    deletionRequestedAt === undefined
      ? 'already exists; update it, or choose another name'
      : 'is being deleted; wait until it is gone';
  return new CloudlessError('exists', `workload "${namespace}/${name}" ${hint}`);
}

function deletingError({ namespace, name }: WorkloadRecord): CloudlessError {
  return new CloudlessError('precondition', `workload "${namespace}/${name}" is being deleted`);
}
