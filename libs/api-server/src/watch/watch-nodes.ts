import { create } from '@bufbuild/protobuf';
import {
  NodeSchema,
  WatchNodesResponseSchema,
  WatchNodesResponse_Kind as WatchKind,
  createWithEncodedField,
  matchesLabels,
  parseLabelSelector,
  type Node,
  type WatchNodesRequest,
  type WatchNodesResponse,
} from '@cloudless/api';
import type { NodeRecord, ReplicaRecord } from '@cloudless/api/store';
import {
  toEffectiveNode,
  type ClusterView,
  type HistoricChange,
  type RecordChange,
} from '@cloudless/cluster-state';
import type { NodePictures } from '../node/node-pictures.js';
import type { WatchSource } from './watch-records.js';

/**
 * Creates the watch source of nodes.
 * @param presenter - Builds the API message of a node, with usage, or the same message encoded. With
 *   `encode`, the items must be encoded by `toBinary`.
 * @throws kind `invalid` when the label selector cannot be parsed.
 */
export function createNodeSource(
  request: WatchNodesRequest,
  presenter:
    | { readonly present: (record: NodeRecord) => Node }
    | { readonly encode: NodePictures['encode'] },
): WatchSource<'node', WatchNodesResponse> {
  const selector = parseLabelSelector(request.labelSelector);
  const presentItem = (record: NodeRecord, revision: bigint): WatchNodesResponse => {
    const item = { kind: WatchKind.PUT, revision };
    if ('encode' in presenter)
      return Object.assign(
        createWithEncodedField(
          WatchNodesResponseSchema,
          WatchNodesResponseSchema.field.node.number,
          [presenter.encode(record, request.includeUsage)],
        ),
        item,
      );
    const node = presenter.present(record);
    if (!request.includeUsage && node.status !== undefined) delete node.status.usage;
    return create(WatchNodesResponseSchema, { ...item, node });
  };
  return {
    kind: 'node',
    dependsOn: ['node', 'replica', 'control'],
    getKey: ({ id }) => id,
    findRecord: (view, id) => view.node(id),
    listRecords: (view) => view.nodes(),
    matchesFilter: (record) =>
      (request.nodeId === '' || record.id === request.nodeId) &&
      matchesLabels(selector, toEffectiveNode(record).labels),
    listAffectedKeys: listAffectedNodes,
    listKeysAffectedByLiveness: (_view, nodeId, kind) =>
      kind === 'liveness' || request.includeUsage ? [nodeId] : [],
    toItem: (update) => {
      const { revision } = update;
      switch (update.kind) {
        case 'put':
          return presentItem(update.record, revision);
        case 'deleted': {
          const node = create(NodeSchema, { id: update.record.id });
          return create(WatchNodesResponseSchema, { kind: WatchKind.DELETED, node, revision });
        }
        case 'synced':
          return create(WatchNodesResponseSchema, { kind: WatchKind.SYNCED, revision });
        case 'bookmark':
          return create(WatchNodesResponseSchema, { kind: WatchKind.BOOKMARK, revision });
      }
    },
  };
}

/**
 * Returns the ids of the nodes whose API message a change may affect. The message of a node
 * contains the resources of its replicas; that of a draining node also contains why replicas
 * remain.
 */
function listAffectedNodes(
  view: ClusterView,
  change: RecordChange | HistoricChange,
): Iterable<string> {
  if (change.kind === 'node') return [change.id];
  if (change.kind === 'control') return listDrainingNodes(view, change.id);
  if (change.kind !== 'replica') return [];
  const before = 'before' in change ? (change.before as ReplicaRecord | undefined) : undefined;
  const after = change.after as ReplicaRecord | undefined;
  const replica = after ?? before;
  // A deletion from the history does not contain the replica, so any node may be affected.
  if (replica === undefined) return [...view.nodes()].map(({ value }) => value.id);
  const nodeIds = [before?.nodeId ?? '', after?.nodeId ?? ''].filter((id) => id !== '');
  // The drain status lists replacements that have no node yet.
  const wasUnplaced = before === undefined || before.nodeId === '';
  return new Set([...nodeIds, ...(wasUnplaced ? listDrainingNodes(view, replica.uid) : [])]);
}

/** Returns the draining nodes that still have replicas of a workload. */
function* listDrainingNodes(view: ClusterView, uid: string): Generator<string> {
  for (const { value } of view.drainingNodes()) {
    for (const replica of view.replicasOn(value.id)) {
      if (replica.value.uid !== uid) continue;
      yield value.id;
      break;
    }
  }
}
