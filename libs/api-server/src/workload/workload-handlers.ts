import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  ListWorkloadsResponseSchema,
  WorkloadSchema,
  createEncodedMessage,
  createWithEncodedField,
  isBinaryCall,
  iterateAfter,
  matchesLabels,
  paginateIndex,
  parseLabelSelector,
  skipLength,
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
  type WatchReplicasRequest,
  type WatchReplicasResponse,
  type WatchWorkloadsRequest,
  type WatchWorkloadsResponse,
  type Workload,
  type WorkloadPlan,
} from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { toNameKeyId, type ClusterView } from '@cloudless/cluster-state';
import { CallAccess } from '../access/call-access.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import { runIdempotent, type MutationDeps } from '../mutation/idempotent-mutation.js';
import type { LivenessChanges } from '../watch/liveness-changes.js';
import { watchRecords } from '../watch/watch-records.js';
import { watchReplicas } from '../watch/watch-replicas.js';
import { createWorkloadSource } from '../watch/watch-workloads.js';
import { requireWorkload } from '../lookup.js';
import { changeWorkload } from './workload-change.js';
import { planDeletion, putDeletion } from './workload-deletion.js';
import { planApply, validateSpec, planCreate, planScale, planUpdate } from './spec-changes.js';
import { truncateWorkloadPlan } from './plan-size.js';

/** Handlers of the workload calls of CoordinatorService. */
export class WorkloadHandlers {
  private readonly access: CallAccess;

  constructor(
    private readonly deps: ApiServerDeps &
      MutationDeps & { readonly livenessChanges: LivenessChanges },
  ) {
    this.access = new CallAccess(deps);
  }

  createWorkload(request: CreateWorkloadRequest, entry: AuditEntry): Promise<Workload> {
    validateSpec(this.deps, request.spec);
    return runIdempotent(
      this.deps,
      CoordinatorService.method.createWorkload,
      { request, entry },
      (view) =>
        changeWorkload(this.deps, view, planCreate(this.deps, view, request), request.requestId),
    );
  }

  updateWorkload(request: UpdateWorkloadRequest, entry: AuditEntry): Promise<Workload> {
    return runIdempotent(
      this.deps,
      CoordinatorService.method.updateWorkload,
      { request, entry },
      (view) =>
        changeWorkload(this.deps, view, planUpdate(this.deps, view, request), request.requestId),
    );
  }

  scaleWorkload(request: ScaleWorkloadRequest, entry: AuditEntry): Promise<Workload> {
    return runIdempotent(
      this.deps,
      CoordinatorService.method.scaleWorkload,
      { request, entry },
      (view) => changeWorkload(this.deps, view, planScale(view, request), request.requestId),
    );
  }

  /**
   * Marks a workload for deletion; the workload reconciler stops its replicas and deletes the
   * records. A repeated call changes nothing.
   */
  deleteWorkload(request: DeleteWorkloadRequest, entry: AuditEntry): Promise<Workload> {
    return runIdempotent(
      this.deps,
      CoordinatorService.method.deleteWorkload,
      { request, entry },
      (view) => {
        const { current, after } = planDeletion(view, request, this.deps.clock.wallTime());
        const response = this.deps.presenter.present(after ?? current.value, /* full */ true);
        if (after === undefined) return { response };
        const transaction = this.deps.state.transaction();
        putDeletion(transaction, current, after);
        return { response, transaction };
      },
    );
  }

  getWorkload(request: GetWorkloadRequest, { requestHeader }: HandlerContext): Workload {
    const { value } = requireWorkload(this.deps.state.view(), request);
    const { presenter } = this.deps;
    return isBinaryCall(requestHeader)
      ? createEncodedMessage(WorkloadSchema, skipLength(presenter.encode(value, /* full */ true)))
      : presenter.present(value, /* full */ true);
  }

  listWorkloads(request: ListWorkloadsRequest, context: HandlerContext): ListWorkloadsResponse {
    const isVisible = this.access.createFilter(
      this.access.getCaller(context),
      CoordinatorService.method.listWorkloads,
      request.namespace,
    );
    const selector = parseLabelSelector(request.labelSelector);
    const view = this.deps.state.view();
    const { namespace, nodeId } = request;
    const idsOnNode =
      nodeId === ''
        ? undefined
        : new Set([...view.replicasOn(nodeId)].map(({ value }) => value.id));
    const { items, nextPageToken } = paginateIndex(
      nodeId === ''
        ? (after) => listWorkloadsAfter(view, namespace, after)
        : (after) => iterateAfter(listWorkloadsOn(view, nodeId), toNameKey, after),
      toNameKey,
      request,
      { filter: ['workloads', namespace, request.labelSelector, nodeId] },
      (record) =>
        (namespace === '' || record.namespace === namespace) &&
        isVisible(record.namespace) &&
        matchesLabels(selector, record.spec?.labels ?? {}),
    );
    const common = { nextPageToken, revision: view.revision };
    // The picture of a workload has the replicas on all nodes.
    const isFiltered = idsOnNode !== undefined && request.includeReplicas;
    if (isBinaryCall(context.requestHeader) && !isFiltered)
      return Object.assign(
        createWithEncodedField(
          ListWorkloadsResponseSchema,
          ListWorkloadsResponseSchema.field.workloads.number,
          items.map((record) => this.deps.presenter.encode(record, request.includeReplicas)),
        ),
        common,
      );
    const workloads = items.map((record) => {
      const workload = this.deps.presenter.present(record, request.includeReplicas);
      if (idsOnNode !== undefined && workload.status !== undefined)
        workload.status.replicas = workload.status.replicas.filter(({ id }) => idsOnNode.has(id));
      return workload;
    });
    return create(ListWorkloadsResponseSchema, { workloads, ...common });
  }

  watchWorkloads(
    request: WatchWorkloadsRequest,
    context: HandlerContext,
  ): AsyncGenerator<WatchWorkloadsResponse> {
    const isVisible = this.access.createFilter(
      this.access.getCaller(context),
      CoordinatorService.method.watchWorkloads,
      request.namespace,
    );
    return watchRecords(
      this.deps,
      createWorkloadSource(this.deps, request, {
        isVisible,
        isBinary: isBinaryCall(context.requestHeader),
      }),
      request.afterRevision,
      context.signal,
    );
  }

  watchReplicas(
    request: WatchReplicasRequest,
    context: HandlerContext,
  ): AsyncGenerator<WatchReplicasResponse> {
    const isVisible = this.access.createFilter(
      this.access.getCaller(context),
      CoordinatorService.method.watchReplicas,
      request.namespace,
    );
    return watchReplicas(
      this.deps,
      request,
      { isVisible, isBinary: isBinaryCall(context.requestHeader) },
      context.signal,
    );
  }

  /** Predicts the effect of creating or updating one workload. Stores nothing. */
  planWorkload(request: PlanWorkloadRequest): WorkloadPlan {
    const { current, ...change } = planApply(this.deps, this.deps.state.view(), request);
    return truncateWorkloadPlan(
      this.deps.dryRun.planChange({ ...change, current: current?.value }),
    );
  }

  explainWorkload(request: ExplainWorkloadRequest): ExplainWorkloadResponse {
    return this.deps.dryRun.explain(requireWorkload(this.deps.state.view(), request).value);
  }
}

function toNameKey({ namespace, name }: WorkloadRecord): string {
  return toNameKeyId(namespace, name);
}

/**
 * Lists the workloads of a namespace by name, ascending.
 * @param namespace - Empty: all namespaces, ordered by name.
 * @param after - Only workloads after this key. Default: all.
 */
function* listWorkloadsAfter(
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

/** Lists the workloads that have replicas on a node, by namespace and name, ascending. */
function listWorkloadsOn(view: ClusterView, nodeId: string): readonly WorkloadRecord[] {
  const uids = new Set([...view.replicasOn(nodeId)].map(({ value }) => value.uid));
  return [...uids]
    .flatMap((uid) => view.workload(uid)?.value ?? [])
    .sort((a, b) => (toNameKey(a) < toNameKey(b) ? -1 : 1));
}
