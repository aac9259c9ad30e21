import { create } from '@bufbuild/protobuf';
import {
  WatchWorkloadsResponseSchema,
  WatchWorkloadsResponse_Kind as WatchKind,
  WorkloadSchema,
  matchesLabels,
  parseLabelSelector,
  type ReplicaStatus,
  type WatchWorkloadsRequest,
  type WatchWorkloadsResponse,
} from '@cloudless/api';
import type { NodeRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  isTombstone,
  type ClusterView,
  type HistoricChange,
  type RecordChange,
} from '@cloudless/cluster-state';
import type { ApiServerDeps, Placements } from './ports.js';
import type { WatchSource } from './watch-records.js';

/**
 * The watch source of workloads. @throws kind `invalid` when the label selector cannot be parsed.
 */
export function workloadSource(
  deps: Pick<ApiServerDeps, 'state' | 'pictures' | 'placements'>,
  request: WatchWorkloadsRequest,
): WatchSource<'workload', WatchWorkloadsResponse> {
  const selector = parseLabelSelector(request.labelSelector);
  return {
    ...workloadRecords(deps.placements),
    wanted: (record) =>
      (request.namespace === '' || record.namespace === request.namespace) &&
      (request.name === '' || record.name === request.name) &&
      matchesLabels(selector, record.spec?.labels ?? {}),
    touchedBySoft: (view, nodeId, what) => (what === 'liveness' ? workloadsOn(view, nodeId) : []),
    toItem: (news) => {
      const { revision } = news;
      switch (news.kind) {
        case 'put':
          return create(WatchWorkloadsResponseSchema, {
            kind: WatchKind.PUT,
            workload: deps.pictures.read(news.record, true),
            revision,
          });
        case 'deleted': {
          const { namespace, name, uid } = news.record;
          const replicas = leftBehind(deps, uid);
          const workload = create(WorkloadSchema, {
            namespace,
            name,
            uid,
            ...(replicas.length === 0 ? {} : { status: { replicas } }),
          });
          return create(WatchWorkloadsResponseSchema, {
            kind: WatchKind.DELETED,
            workload,
            revision,
          });
        }
        case 'synced':
          return create(WatchWorkloadsResponseSchema, { kind: WatchKind.SYNCED, revision });
        case 'bookmark':
          return create(WatchWorkloadsResponseSchema, { kind: WatchKind.BOOKMARK, revision });
      }
    },
  };
}

/**
 * The part of a watch source that all watches of workloads share: which records an item depends on.
 */
export function workloadRecords(
  placements: Placements,
): Pick<
  WatchSource<'workload', unknown>,
  'kind' | 'madeOf' | 'keyOf' | 'find' | 'all' | 'touchedBy'
> {
  return {
    kind: 'workload',
    madeOf: ['workload', 'control', 'version', 'replica', 'node'],
    keyOf: ({ uid }: WorkloadRecord) => uid,
    find: (view, uid) => view.workload(uid),
    all: (view) => view.workloads(),
    touchedBy: (view, change) => {
      if (change.kind === 'workload' || change.kind === 'control') return [change.id];
      if (change.kind === 'replica' || change.kind === 'version')
        return [change.id.slice(0, change.id.indexOf('/'))];
      // Replicas show the zone of their node.
      return change.kind === 'node' && mayHaveMoved(placements, change)
        ? workloadsOn(view, change.id)
        : [];
    },
  };
}

/** Returns the replicas of a deleted workload that may still run on lost nodes. */
function leftBehind(
  { state, pictures }: Parameters<typeof workloadSource>[0],
  uid: string,
): ReplicaStatus[] {
  const view = state.view();
  if (view.workload(uid) !== undefined) return [];
  return [...view.replicasOf(uid)]
    .filter(({ value }) => isTombstone(value))
    .map(({ value }) => pictures.readReplica(value));
}

function workloadsOn(view: ClusterView, nodeId: string): ReadonlySet<string> {
  return new Set([...view.replicasOn(nodeId)].map(({ value }) => value.uid));
}

function mayHaveMoved({ effective }: Placements, change: RecordChange | HistoricChange): boolean {
  const before = 'before' in change ? (change.before as NodeRecord) : undefined;
  const after = change.after as NodeRecord | undefined;
  return (
    before === undefined || after === undefined || effective(before).zone !== effective(after).zone
  );
}
