import { create } from '@bufbuild/protobuf';
import {
  WatchWorkloadsResponseSchema,
  WatchWorkloadsResponse_Kind as WatchKind,
  WorkloadSchema,
  createWithEncodedField,
  matchesLabels,
  parseLabelSelector,
  type WatchWorkloadsRequest,
  type WatchWorkloadsResponse,
} from '@cloudless/api';
import type { NodeRecord, ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import {
  getZone,
  isTombstone,
  limitListed,
  type ClusterView,
  type HistoricChange,
  type RecordChange,
} from '@cloudless/cluster-state';
import type { ReadDeps } from '../ports.js';
import type { WatchSource } from './watch-records.js';

/**
 * Creates the watch source of workloads.
 * @param isVisible - Returns true for the namespaces whose workloads are sent.
 * @param isBinary - True when the items are encoded by `toBinary`: all watches then share the bytes
 *   of a workload.
 * @throws kind `invalid` when the label selector cannot be parsed.
 */
export function createWorkloadSource(
  deps: Pick<ReadDeps, 'state' | 'presenter'>,
  request: WatchWorkloadsRequest,
  {
    isVisible,
    isBinary,
  }: { readonly isVisible: (namespace: string) => boolean; readonly isBinary: boolean },
): WatchSource<'workload', WatchWorkloadsResponse> {
  const selector = parseLabelSelector(request.labelSelector);
  const isFull = !request.omitReplicas;
  return {
    ...createWorkloadRecordSource(),
    matchesFilter: (record) =>
      (request.namespace === '' || record.namespace === request.namespace) &&
      isVisible(record.namespace) &&
      (request.name === '' || record.name === request.name) &&
      matchesLabels(selector, record.spec?.labels ?? {}),
    listKeysAffectedByLiveness: (view, nodeId, kind) =>
      kind === 'liveness' ? listWorkloadsOnNode(view, nodeId) : [],
    toItem: (update) => {
      const { revision } = update;
      switch (update.kind) {
        case 'put':
          if (isBinary)
            return Object.assign(
              createWithEncodedField(
                WatchWorkloadsResponseSchema,
                WatchWorkloadsResponseSchema.field.workload.number,
                [deps.presenter.encode(update.record, isFull)],
              ),
              { kind: WatchKind.PUT, revision },
            );
          return create(WatchWorkloadsResponseSchema, {
            kind: WatchKind.PUT,
            workload: deps.presenter.present(update.record, isFull),
            revision,
          });
        case 'deleted': {
          const { namespace, name, uid } = update.record;
          const lost = limitListed(listLostReplicas(deps.state.view(), uid));
          const replicas = lost.replicas.map((replica) => deps.presenter.presentReplica(replica));
          const omittedReplicas = lost.omitted;
          const workload = create(WorkloadSchema, {
            namespace,
            name,
            uid,
            ...(replicas.length === 0 ? {} : { status: { replicas, omittedReplicas } }),
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
 * Creates the part of a watch source that the watches of workloads and of endpoints share: the
 * records, and which items a change of a record affects.
 */
export function createWorkloadRecordSource(): Pick<
  WatchSource<'workload', unknown>,
  'kind' | 'dependsOn' | 'getKey' | 'findRecord' | 'listRecords' | 'listAffectedKeys'
> {
  return {
    kind: 'workload',
    dependsOn: ['workload', 'control', 'version', 'replica', 'node'],
    getKey: ({ uid }: WorkloadRecord) => uid,
    findRecord: (view, uid) => view.workload(uid),
    listRecords: (view) => view.workloads(),
    listAffectedKeys: (view, change) => {
      if (change.kind === 'workload' || change.kind === 'control') return [change.id];
      if (change.kind === 'replica' || change.kind === 'version')
        return [change.id.slice(0, change.id.indexOf('/'))];
      // The message of a replica contains the zone of its node.
      return change.kind === 'node' && mayHaveChangedZone(change)
        ? listWorkloadsOnNode(view, change.id)
        : [];
    },
  };
}

/**
 * Returns the replicas of a deleted workload that may still run on lost nodes. None when a workload
 * with this uid still exists.
 */
function listLostReplicas(view: ClusterView, uid: string): readonly ReplicaRecord[] {
  if (view.workload(uid) !== undefined) return [];
  return Array.from(view.replicasOf(uid), ({ value }) => value).filter(isTombstone);
}

/** Returns the uids of the workloads that have replicas on a node. */
export function listWorkloadsOnNode(view: ClusterView, nodeId: string): ReadonlySet<string> {
  return new Set([...view.replicasOn(nodeId)].map(({ value }) => value.uid));
}

/** Returns true when a change of a node changes its zone, or when that is unknown. */
export function mayHaveChangedZone(change: RecordChange | HistoricChange): boolean {
  const before = 'before' in change ? (change.before as NodeRecord) : undefined;
  const after = change.after as NodeRecord | undefined;
  return before === undefined || after === undefined || getZone(before) !== getZone(after);
}
