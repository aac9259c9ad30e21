import { clone, create, equals } from '@bufbuild/protobuf';
import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  EnrollNodeResponseSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  ListNodesResponseSchema,
  NodeStatus_Phase as NodePhase,
  RemoveNodeResponseSchema,
  matchesLabels,
  paginate,
  parseLabelSelector,
  type ConfirmNodeLostRequest,
  type CordonNodeRequest,
  type DrainNodeRequest,
  type EnrollNodeRequest,
  type EnrollNodeResponse,
  type GetNodeRequest,
  type ListNodesRequest,
  type ListNodesResponse,
  type Node,
  type NodeSchema,
  type RemoveNodeRequest,
  type RemoveNodeResponse,
  type UncordonNodeRequest,
  type UpdateNodeRequest,
  type WatchNodesRequest,
  type WatchNodesResponse,
} from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  holdsResources,
  toEffectiveNode,
  toReplicaKeyId,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import {
  runIdempotent,
  type MutatingCall,
  type MutationDeps,
} from '../mutation/idempotent-mutation.js';
import type { LivenessChanges } from '../watch/liveness-changes.js';
import { createNodeSource } from '../watch/watch-nodes.js';
import { watchRecords } from '../watch/watch-records.js';
import { startDrain, uncordonNode, type NodeChange } from './drain.js';
import { describeNodeUpdate, updateNodeRecord } from './node-update.js';
import { presentNode } from './node-presenter.js';

/**
 * Replica records that one commit deletes. The audit record included, a commit stays below the
 * store's limit of 100 writes in a transaction.
 */
const MAX_REMOVED_PER_COMMIT = 80;

/** Handlers of the node calls of CoordinatorService. */
export class NodeHandlers {
  constructor(
    private readonly deps: ApiServerDeps &
      MutationDeps & { readonly livenessChanges: LivenessChanges },
  ) {}

  /**
   * Registers a machine as a node. A repeated call of the same machine changes nothing.
   * @throws kind `exists` when another machine has the node id, `unimplemented` for a request with
   *   credentials.
   */
  async enrollNode(request: EnrollNodeRequest, entry: AuditEntry): Promise<EnrollNodeResponse> {
    const refused = [
      ...(request.csr.length > 0 ? ['csr'] : []),
      ...(request.token === '' ? [] : ['token']),
    ];
    if (refused.length > 0) {
      throw new CloudlessError(
        'unimplemented',
        `${refused.join(', ')}: this cluster has no identities; enrol without ${refused.join(' and ')}`,
      );
    }
    const subject = `node "${request.nodeId}"`;
    return this.deps.mutex.run(subject, () =>
      retryOnConflict({ ...this.deps, subject }, () => this.enroll(request, entry)),
    );
  }

  getNode(request: GetNodeRequest): Node {
    return this.presentNode(this.requireNode(request.nodeId).value);
  }

  listNodes(request: ListNodesRequest): ListNodesResponse {
    const selector = parseLabelSelector(request.labelSelector);
    const nodes = [...this.deps.state.view().nodes()]
      .map(({ value }) => value)
      .filter((record) => matchesLabels(selector, toEffectiveNode(record).labels))
      .sort((a, b) => (a.id < b.id ? -1 : 1));
    const { items, nextPageToken } = paginate(nodes, ({ id }) => id, request, {
      filter: ['nodes', request.labelSelector],
    });
    const { revision } = this.deps.state.view();
    return create(ListNodesResponseSchema, {
      nodes: items.map((record) => this.presentNode(record)),
      nextPageToken,
      revision,
    });
  }

  watchNodes(
    request: WatchNodesRequest,
    { signal }: HandlerContext,
  ): AsyncGenerator<WatchNodesResponse> {
    const source = createNodeSource(request, (record) => this.presentNode(record));
    return watchRecords(this.deps, source, request.afterRevision, signal);
  }

  updateNode(request: UpdateNodeRequest, entry: AuditEntry): Promise<Node> {
    const { clock } = this.deps;
    return this.updateRecord(CoordinatorService.method.updateNode, { request, entry }, (before) => {
      const after = updateNodeRecord(before, request, clock.wallTime());
      if (equals(NodeRecordSchema, before, after)) return undefined;
      const message = `node ${after.id} was changed: ${describeNodeUpdate(before, after)}`;
      return { after, reason: 'NodeUpdated', message };
    });
  }

  cordonNode(request: CordonNodeRequest, entry: AuditEntry): Promise<Node> {
    return this.updateRecord(CoordinatorService.method.cordonNode, { request, entry }, (before) => {
      if (before.cordoned) return undefined;
      const after = Object.assign(clone(NodeRecordSchema, before), { cordoned: true });
      return { after, reason: 'NodeCordoned', message: `node ${after.id} accepts no new replicas` };
    });
  }

  uncordonNode(request: UncordonNodeRequest, entry: AuditEntry): Promise<Node> {
    return this.updateRecord(
      CoordinatorService.method.uncordonNode,
      { request, entry },
      uncordonNode,
    );
  }

  drainNode(request: DrainNodeRequest, entry: AuditEntry): Promise<Node> {
    return this.updateRecord(CoordinatorService.method.drainNode, { request, entry }, (before) => {
      const { placements, clock } = this.deps;
      return startDrain(before, request, {
        nowMs: clock.wallTime(),
        replicaCount: placements.getAllocated(before.id).replicas,
      });
    });
  }

  async confirmNodeLost(request: ConfirmNodeLostRequest, entry: AuditEntry): Promise<Node> {
    const { nodes, state } = this.deps;
    const node = await this.updateRecord(
      CoordinatorService.method.confirmNodeLost,
      { request, entry },
      (before) => {
        const { phase } = nodes.status(before.id);
        if (phase !== NodePhase.LOST) {
          throw new CloudlessError(
            'precondition',
            `node "${before.id}" is ${NodePhase[phase]}, not LOST; wait until its lease has ended, or drain it while it is connected`,
          );
        }
        if (before.lossConfirmed) return undefined;
        const after = Object.assign(clone(NodeRecordSchema, before), { lossConfirmed: true });
        const message = `node ${after.id} was confirmed dead: its replicas are replaced at once`;
        return { after, reason: 'NodeLossConfirmed', message };
      },
    );
    // The stored response of an older call with this request id says nothing about the node now:
    // the node may have returned since, or may be lost for another time.
    if (state.view().node(request.nodeId)?.value.lossConfirmed === true)
      nodes.confirmLost(request.nodeId);
    return node;
  }

  async removeNode(request: RemoveNodeRequest, entry: AuditEntry): Promise<RemoveNodeResponse> {
    const { state, nodes } = this.deps;
    const { nodeId } = request;
    const response = await runIdempotent(
      this.deps,
      CoordinatorService.method.removeNode,
      { request, entry },
      async () => {
        this.checkRemovable(request);
        await this.removeReplicas(nodeId, entry);
        const node = this.requireNode(nodeId);
        const transaction = state
          .transaction()
          .require('node', nodeId, node)
          .delete('node', nodeId)
          .event({
            ...createEventFields(node.value, request),
            reason: 'NodeRemoved',
            message: `node ${nodeId} was removed`,
          });
        return { response: create(RemoveNodeResponseSchema), transaction };
      },
    );
    // The response may be the stored one of an older call. Another machine may have enrolled under
    // the node id since.
    if (state.view().node(nodeId) !== undefined) return response;
    // A replica may have been placed on the node while its other replicas were removed. Without a
    // node record, no more can be placed.
    await this.removeReplicas(nodeId, entry);
    nodes.removeNode(nodeId);
    return response;
  }

  private presentNode(record: NodeRecord): Node {
    return presentNode(this.deps, record);
  }

  private async enroll(request: EnrollNodeRequest, entry: AuditEntry): Promise<EnrollNodeResponse> {
    const { state, clock } = this.deps;
    const response = create(EnrollNodeResponseSchema, {
      nodeId: request.nodeId,
      clusterId: state.clusterId,
    });
    const existing = state.view().node(request.nodeId);
    if (existing?.value.instanceId === request.instanceId) return response;
    if (existing !== undefined) {
      throw new CloudlessError(
        'exists',
        `node "${request.nodeId}" is enrolled by another machine; choose another name, or remove that node first`,
      );
    }
    const record = create(NodeRecordSchema, {
      id: request.nodeId,
      instanceId: request.instanceId,
      createdAt: timestampFromMs(clock.wallTime()),
    });
    await entry.commit(
      state
        .transaction()
        .require('node', record.id, 'absent')
        .put('node', record.id, record)
        .event({
          ...createEventFields(record, { requestId: '' }),
          reason: 'NodeEnrolled',
          message: `node ${record.id} was enrolled`,
        }),
      // Allowed while the state is restored: when the restored state lacks the node, its agent must
      // be able to enrol and to report its newer orders.
      'commitObserved',
    );
    return response;
  }

  /** @throws kind `precondition` when the node is connected, or has replicas without `force`. */
  private checkRemovable({ nodeId, force }: RemoveNodeRequest): void {
    const { state, nodes } = this.deps;
    this.requireNode(nodeId);
    const live = [...state.view().replicasOn(nodeId)].filter(({ value }) => holdsResources(value));
    if (!force && live.length > 0) {
      throw new CloudlessError(
        'precondition',
        `node "${nodeId}" holds ${live.length} replicas; drain it first, or remove it with force`,
      );
    }
    if (nodes.status(nodeId).alive) {
      throw new CloudlessError(
        'precondition',
        `node "${nodeId}" is connected; stop its agent first, or it would enrol again at once`,
      );
    }
  }

  /** Deletes the records of all replicas on a node, in as many commits as necessary. */
  private async removeReplicas(nodeId: string, entry: AuditEntry): Promise<void> {
    const { state } = this.deps;
    for (;;) {
      const replicas = [...state.view().replicasOn(nodeId)].slice(0, MAX_REMOVED_PER_COMMIT);
      if (replicas.length === 0) return;
      const transaction = state.transaction();
      for (const { value } of replicas)
        transaction.delete('replica', toReplicaKeyId(value.uid, value.sequence));
      await entry.commit(transaction);
    }
  }

  /**
   * Runs a call that changes one node record.
   * @param decide - Returns the changed record and its event, or undefined when the call changes
   *   nothing.
   */
  private updateRecord<Request extends DescMessage>(
    method: DescMethodUnary<Request, typeof NodeSchema>,
    { request, entry }: MutatingCall<MessageShape<Request> & NodeMutationRequest>,
    decide: (before: NodeRecord) => NodeChange | undefined,
  ): Promise<Node> {
    return runIdempotent(this.deps, method, { request, entry }, () => {
      const current = this.requireNode(request.nodeId);
      const change = decide(current.value);
      if (change === undefined) return { response: this.presentNode(current.value) };
      const transaction = putNodeChange(
        this.deps.state.transaction(),
        current,
        change,
        request.requestId,
      );
      return { response: this.presentNode(change.after), transaction };
    });
  }

  private requireNode(nodeId: string): Stored<NodeRecord> {
    return requireNode(this.deps.state.view(), nodeId);
  }
}

/**
 * Returns the record of a node.
 * @throws kind `notFound` when there is no such node.
 */
export function requireNode(view: ClusterView, nodeId: string): Stored<NodeRecord> {
  const node = view.node(nodeId);
  if (node !== undefined) return node;
  throw new CloudlessError('notFound', `node "${nodeId}" not found`);
}

/**
 * Adds a changed node record and its event to a transaction, which then fails when the record has
 * changed since `current` was read.
 */
export function putNodeChange(
  transaction: Transaction,
  current: Stored<NodeRecord>,
  { after, ...event }: NodeChange,
  requestId: string,
): Transaction {
  return transaction
    .require('node', after.id, current)
    .put('node', after.id, after)
    .event({ ...createEventFields(after, { requestId }), ...event });
}

interface NodeMutationRequest {
  readonly nodeId: string;
  readonly requestId: string;
}

function createEventFields({ id }: NodeRecord, { requestId }: { readonly requestId: string }) {
  return { severity: Severity.INFO, category: Category.MEMBERSHIP, nodeId: id, requestId };
}
