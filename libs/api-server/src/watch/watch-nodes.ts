import { create } from '@bufbuild/protobuf';
import {
  NodeSchema,
  WatchNodesResponseSchema,
  WatchNodesResponse_Kind as WatchKind,
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
import type { WatchSource } from './watch-records.js';

/**
 * Creates the watch source of nodes.
 * @param presentNode - Builds the API message of a node, with usage.
 * @throws kind `invalid` when the label selector cannot be parsed.
 */
export function createNodeSource(
  request: WatchNodesRequest,
  presentNode: (record: NodeRecord) => Node,
): WatchSource<'node', WatchNodesResponse> {
  const selector = parseLabelSelector(request.labelSelector);
  const presentItem = (record: NodeRecord): Node => {
    const node = presentNode(record);
    if (!request.includeUsage && node.status !== undefined) delete node.status.usage;
    return node;
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
          return create(WatchNodesResponseSchema, {
            kind: WatchKind.PUT,
            node: presentItem(update.record),
            revision,
          });
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
