import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  ListNodesResponseSchema,
  NodeSchema,
  createEncodedMessage,
  createWithEncodedField,
  isBinaryCall,
  matchesLabels,
  paginateIndex,
  parseLabelSelector,
  skipLength,
  type GetNodeRequest,
  type ListNodesRequest,
  type ListNodesResponse,
  type Node,
  type WatchNodesRequest,
  type WatchNodesResponse,
} from '@cloudless/api';
import { toEffectiveNode } from '@cloudless/cluster-state';
import type { ReadDeps } from '../ports.js';
import type { LivenessChanges } from '../watch/liveness-changes.js';
import { createNodeSource } from '../watch/watch-nodes.js';
import { watchRecords } from '../watch/watch-records.js';
import { requireNode } from './node-change.js';
import type { NodePictures } from './node-pictures.js';
import { presentNode } from './node-presenter.js';

/** Handlers of the calls of CoordinatorService that read nodes. */
export class NodeReads {
  constructor(
    private readonly deps: Pick<ReadDeps, 'state' | 'clock' | 'nodes' | 'placements'> & {
      readonly livenessChanges: LivenessChanges;
      readonly nodePictures: NodePictures;
    },
  ) {}

  getNode(request: GetNodeRequest, { requestHeader }: HandlerContext): Node {
    const { value } = requireNode(this.deps.state.view(), request.nodeId);
    return isBinaryCall(requestHeader)
      ? createEncodedMessage(NodeSchema, skipLength(this.deps.nodePictures.encode(value)))
      : presentNode(this.deps, value);
  }

  listNodes(request: ListNodesRequest, { requestHeader }: HandlerContext): ListNodesResponse {
    const selector = parseLabelSelector(request.labelSelector);
    const view = this.deps.state.view();
    const { items, nextPageToken } = paginateIndex(
      (after) => view.nodesById(after),
      ({ value }) => value.id,
      request,
      { filter: ['nodes', request.labelSelector] },
      ({ value }) =>
        selector.length === 0 || matchesLabels(selector, toEffectiveNode(value).labels),
    );
    const common = { nextPageToken, revision: view.revision };
    if (isBinaryCall(requestHeader))
      return Object.assign(
        createWithEncodedField(
          ListNodesResponseSchema,
          ListNodesResponseSchema.field.nodes.number,
          items.map(({ value }) => this.deps.nodePictures.encode(value)),
        ),
        common,
      );
    const nodes = items.map(({ value }) => presentNode(this.deps, value));
    return create(ListNodesResponseSchema, { nodes, ...common });
  }

  watchNodes(
    request: WatchNodesRequest,
    { signal, requestHeader }: HandlerContext,
  ): AsyncGenerator<WatchNodesResponse> {
    const { nodePictures } = this.deps;
    const source = createNodeSource(
      request,
      isBinaryCall(requestHeader)
        ? { encode: (record, includeUsage) => nodePictures.encode(record, includeUsage) }
        : { present: (record) => presentNode(this.deps, record) },
    );
    return watchRecords(this.deps, source, request.afterRevision, signal);
  }
}
