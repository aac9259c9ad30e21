import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorService,
  ListWorkloadsResponseSchema,
  matchesLabels,
  pageOf,
  parseLabelSelector,
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
} from '@cloudless/api';
import { WorkloadRecordSchema, type WorkloadRecord } from '@cloudless/api/store';
import { nameKeyId } from '@cloudless/cluster-state';
import type { HandlerContext } from '@connectrpc/connect';
import { shownPlan } from './plan-size.js';
import type { ApiServerDeps } from './ports.js';
import { mutate, type Mutation, type MutationDeps } from './requests.js';
import type { SoftChanges } from './soft-changes.js';
import {
  applyChange,
  checkedSpec,
  createChange,
  scaleChange,
  updateChange,
} from './spec-changes.js';
import { watchRecords } from './watch-records.js';
import { workloadSource } from './watch-workloads.js';
import { aboutWorkload, changeWorkload, checkGeneration, found } from './workload-change.js';

/** Handlers of the workload calls of CoordinatorService. */
export class WorkloadHandlers {
  constructor(
    private readonly deps: ApiServerDeps & MutationDeps & { readonly soft: SoftChanges },
  ) {}

  createWorkload = (request: CreateWorkloadRequest): Promise<Workload> => {
    checkedSpec(this.deps, request.spec);
    return mutate(this.deps, CoordinatorService.method.createWorkload, request, (view) =>
      changeWorkload(this.deps, view, createChange(this.deps, view, request), request.requestId),
    );
  };

  updateWorkload = (request: UpdateWorkloadRequest): Promise<Workload> =>
    mutate(this.deps, CoordinatorService.method.updateWorkload, request, (view) =>
      changeWorkload(this.deps, view, updateChange(this.deps, view, request), request.requestId),
    );

  scaleWorkload = (request: ScaleWorkloadRequest): Promise<Workload> =>
    mutate(this.deps, CoordinatorService.method.scaleWorkload, request, (view) =>
      changeWorkload(this.deps, view, scaleChange(view, request), request.requestId),
    );

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
          ...aboutWorkload(record, request.requestId),
          reason: 'WorkloadDeletionRequested',
          message: `deletion of ${record.namespace}/${record.name} was requested`,
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
    const workloads = items.map((record) =>
      this.deps.pictures.read(record, request.includeReplicas),
    );
    return create(ListWorkloadsResponseSchema, {
      workloads,
      nextPageToken,
      revision: this.deps.state.view().revision,
    });
  };

  watchWorkloads(
    request: WatchWorkloadsRequest,
    { signal }: HandlerContext,
  ): AsyncGenerator<WatchWorkloadsResponse> {
    return watchRecords(
      this.deps,
      workloadSource(this.deps, request),
      request.afterRevision,
      signal,
    );
  }

  planWorkload = (request: PlanWorkloadRequest): WorkloadPlan => {
    const { current, ...change } = applyChange(this.deps, this.deps.state.view(), request);
    return shownPlan(this.deps.planning.plan({ ...change, current: current?.value }));
  };

  explainWorkload = (request: ExplainWorkloadRequest): ExplainWorkloadResponse =>
    this.deps.planning.explain(found(this.deps.state.view(), request).value);

  private unchanged(record: WorkloadRecord): Mutation<Workload> {
    return { result: this.deps.pictures.read(record, true) };
  }

  private now() {
    return timestampFromMs(this.deps.clock.wallTime());
  }
}

function nameKey({ namespace, name }: WorkloadRecord): string {
  return nameKeyId(namespace, name);
}
