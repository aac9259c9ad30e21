import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  AgentService,
  CoordinatorService,
  ListContainersResponseSchema,
  ListWorkloadsResponseSchema,
  WorkloadSchema,
  WorkloadVersionSchema,
  createEncodedMessage,
  createWithEncodedField,
  isBinaryCall,
  iterateAfter,
  matchesLabels,
  paginateIndex,
  parseLabelSelector,
  skipLength,
  type GetWorkloadRequest,
  type GetWorkloadVersionRequest,
  type ListContainersResponse,
  type ListReplicasRequest,
  type ListReplicasResponse,
  type ListWorkloadsRequest,
  type ListWorkloadsResponse,
  type WatchReplicasRequest,
  type WatchReplicasResponse,
  type WatchWorkloadsRequest,
  type WatchWorkloadsResponse,
  type Workload,
  type WorkloadVersion,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { definedFields } from '@cloudless/base';
import { limitListed, type ClusterView } from '@cloudless/cluster-state';
import { CallAccess, getReplicaNamespace } from '../access/call-access.js';
import { requireVersion, requireWorkload } from '../lookup.js';
import type { ReadDeps } from '../ports.js';
import type { LivenessChanges } from '../watch/liveness-changes.js';
import { watchRecords } from '../watch/watch-records.js';
import { watchReplicas } from '../watch/watch-replicas.js';
import { createWorkloadSource } from '../watch/watch-workloads.js';
import { presentContainer } from './container-presenter.js';
import { listReplicas } from './list-replicas.js';
import { listWorkloadsAfter, toNameKey } from './workloads-by-name.js';

/** Handlers of the calls that read workloads, their versions and their containers. */
export class WorkloadReads {
  private readonly access: CallAccess;

  constructor(private readonly deps: ReadDeps & { readonly livenessChanges: LivenessChanges }) {
    this.access = new CallAccess(deps);
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
    // The message of a workload has the replicas on all nodes.
    const isFiltered = nodeId !== '' && request.includeReplicas;
    if (isBinaryCall(context.requestHeader) && !isFiltered)
      return Object.assign(
        createWithEncodedField(
          ListWorkloadsResponseSchema,
          ListWorkloadsResponseSchema.field.workloads.number,
          items.map((record) => this.deps.presenter.encode(record, request.includeReplicas)),
        ),
        common,
      );
    const onNode = isFiltered ? groupReplicasOn(view, nodeId) : undefined;
    const workloads = items.map((record) =>
      this.deps.presenter.present(
        record,
        request.includeReplicas,
        onNode && limitListed(onNode.get(record.uid) ?? []),
      ),
    );
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

  listReplicas(request: ListReplicasRequest, context: HandlerContext): ListReplicasResponse {
    const isVisible = this.access.createFilter(
      this.access.getCaller(context),
      CoordinatorService.method.listReplicas,
      request.namespace,
    );
    return listReplicas(this.deps, request, {
      isVisible,
      isBinary: isBinaryCall(context.requestHeader),
    });
  }

  getWorkloadVersion(request: GetWorkloadVersionRequest): WorkloadVersion {
    const view = this.deps.state.view();
    const { value } = requireWorkload(view, request);
    const storedVersion = requireVersion(view, value, request.version);
    const info = this.deps.presenter
      .present(value, /* full */ true)
      .status?.versions.find(({ version }) => version === request.version);
    const template = storedVersion.asWritten ?? storedVersion.template;
    return create(WorkloadVersionSchema, {
      ...definedFields({ info, template }),
    });
  }

  /**
   * Lists the current container of each replica as its agent last reported it. Does not query the
   * agents. Replicas that are lost are omitted.
   */
  listContainers(context: HandlerContext): ListContainersResponse {
    const isVisible = this.access.createFilter(
      this.access.getCaller(context),
      AgentService.method.listContainers,
      '',
    );
    const view = this.deps.state.view();
    const containers = [...view.replicas()]
      .map(({ value }) => value)
      .filter(({ containerId, lost }) => containerId !== '' && !lost)
      .filter((replica) => isVisible(getReplicaNamespace(view, replica)))
      .sort((a, b) => (a.id < b.id ? -1 : 1))
      .map((replica) => presentContainer(view, replica));
    return create(ListContainersResponseSchema, { containers });
  }
}

/** Lists the workloads that have replicas on a node, by namespace and name, ascending. */
function listWorkloadsOn(view: ClusterView, nodeId: string): readonly WorkloadRecord[] {
  const uids = new Set([...view.replicasOn(nodeId)].map(({ value }) => value.uid));
  return [...uids]
    .flatMap((uid) => view.workload(uid)?.value ?? [])
    .sort((a, b) => (toNameKey(a) < toNameKey(b) ? -1 : 1));
}

/** Returns the replicas on a node by the uids of their workloads, oldest first. */
function groupReplicasOn(
  view: ClusterView,
  nodeId: string,
): ReadonlyMap<string, readonly ReplicaRecord[]> {
  const groups = new Map<string, ReplicaRecord[]>();
  for (const { value } of view.replicasOn(nodeId)) {
    const group = groups.get(value.uid);
    if (group === undefined) groups.set(value.uid, [value]);
    else group.push(value);
  }
  for (const group of groups.values()) group.sort((a, b) => Number(a.sequence - b.sequence));
  return groups;
}
