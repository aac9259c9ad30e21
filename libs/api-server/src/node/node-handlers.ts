import { create } from '@bufbuild/protobuf';
import type { DescMessage, DescMethodUnary, MessageShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorService,
  EnrollNodeResponseSchema,
  type NodeSchema,
  RemoveNodeResponseSchema,
  type ConfirmNodeLostRequest,
  type CordonNodeRequest,
  type DrainNodeRequest,
  type EnrollNodeRequest,
  type EnrollNodeResponse,
  type Node,
  type RemoveNodeRequest,
  type RemoveNodeResponse,
  type UncordonNodeRequest,
  type UpdateNodeRequest,
} from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import type { Stored } from '@cloudless/cluster-state';
import { NodeEnrolment } from '../identity/node-enrolment.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { ApiServerDeps } from '../ports.js';
import {
  runIdempotent,
  type MutatingCall,
  type MutationDeps,
} from '../mutation/idempotent-mutation.js';
import { startDrain, uncordonNode, type NodeChange } from './drain.js';
import {
  confirmLoss,
  cordonNode,
  createNodeEventFields,
  putNodeChange,
  releaseBrakeOf,
  requireNode,
} from './node-change.js';
import {
  deleteReplicasOn,
  finishRemoval,
  putNodeRemoval,
  requireRemovable,
} from './node-removal.js';
import { updateNode } from './node-update.js';
import { presentNode } from './node-presenter.js';

/** Handlers of the calls of CoordinatorService that enrol and change nodes. */
export class NodeHandlers {
  /** Undefined in a cluster without identities. */
  private readonly enrolment: NodeEnrolment | undefined;

  constructor(private readonly deps: ApiServerDeps & MutationDeps) {
    if (deps.identity !== undefined) this.enrolment = new NodeEnrolment(deps, deps.identity);
  }

  /**
   * Registers a machine as a node. A repeated call of the same machine changes nothing, apart from
   * another certificate in a cluster with identities.
   * @throws kind `exists` when another machine has the node id; reason NO_IDENTITIES for a request
   *   with credentials in a cluster without identities.
   */
  async enrollNode(request: EnrollNodeRequest, entry: AuditEntry): Promise<EnrollNodeResponse> {
    if (this.enrolment !== undefined) return this.enrolment.enroll(request, entry);
    const refused = [
      ...(request.csr.length > 0 ? ['csr'] : []),
      ...(request.token === '' ? [] : ['token']),
    ];
    if (refused.length > 0) {
      throw new CloudlessError(
        'NO_IDENTITIES',
        `${refused.join(', ')}: this cluster has no identities; enrol without ${refused.join(' and ')}, or start the coordinator with --tls on`,
      );
    }
    const subject = `node "${request.nodeId}"`;
    return this.deps.mutex.run(subject, () =>
      retryOnConflict({ ...this.deps, subject }, () => this.enroll(request, entry)),
    );
  }

  updateNode(request: UpdateNodeRequest, entry: AuditEntry): Promise<Node> {
    return this.updateRecord(CoordinatorService.method.updateNode, { request, entry }, (before) =>
      updateNode(before, request, this.deps.clock.wallTime()),
    );
  }

  cordonNode(request: CordonNodeRequest, entry: AuditEntry): Promise<Node> {
    return this.updateRecord(CoordinatorService.method.cordonNode, { request, entry }, cordonNode);
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
    const { nodes } = this.deps;
    const node = await this.updateRecord(
      CoordinatorService.method.confirmNodeLost,
      { request, entry },
      (before) => confirmLoss(before, nodes.status(before.id).phase),
    );
    releaseBrakeOf(this.deps, request.nodeId);
    return node;
  }

  async removeNode(request: RemoveNodeRequest, entry: AuditEntry): Promise<RemoveNodeResponse> {
    const { state } = this.deps;
    const { nodeId } = request;
    const response = await runIdempotent(
      this.deps,
      CoordinatorService.method.removeNode,
      { request, entry },
      async () => {
        requireRemovable(this.deps, state.view(), request);
        await deleteReplicasOn(state, nodeId, entry);
        const transaction = state.transaction();
        putNodeRemoval(transaction, this.requireNode(nodeId), request.requestId);
        return { response: create(RemoveNodeResponseSchema), transaction };
      },
    );
    await finishRemoval(this.deps, nodeId, entry);
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
        'NODE_EXISTS',
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
          ...createNodeEventFields(record, { requestId: '' }),
          reason: 'NodeEnrolled',
          message: `node ${record.id} was enrolled`,
        }),
      // Allowed while the state is restored: when the restored state lacks the node, its agent must
      // be able to enrol and to report its newer orders.
      'commitObserved',
    );
    return response;
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

interface NodeMutationRequest {
  readonly nodeId: string;
  readonly requestId: string;
}
