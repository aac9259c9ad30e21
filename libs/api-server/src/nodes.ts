import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Condition_Type as ConditionType,
  ConditionSchema,
  EnrollNodeResponseSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  ListNodesResponseSchema,
  NodeCapacitySchema,
  NodeSchema,
  NodeStatusSchema,
  RemoveNodeResponseSchema,
  Taint_Effect,
  matchesLabels,
  pageOf,
  parseLabelSelector,
  type CordonNodeRequest,
  type DrainNodeRequest,
  type EnrollNodeRequest,
  type EnrollNodeResponse,
  type GetNodeRequest,
  type ListNodesRequest,
  type ListNodesResponse,
  type Node,
  type RemoveNodeRequest,
  type RemoveNodeResponse,
  type UncordonNodeRequest,
  type UpdateNodeRequest,
} from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import { holdsResources, replicaKeyId, type EventInit, type Stored } from '@cloudless/cluster-state';
import { withoutConflict } from './conflicts.js';
import type { ApiServerDeps } from './ports.js';

const MAX_ATTEMPTS = 8;
/** With the node itself it stays below the 100 writes of a transaction. */
const MAX_REMOVED_PER_COMMIT = 80;

/** The node calls of CoordinatorService. */
export class NodeHandlers {
  constructor(private readonly deps: ApiServerDeps) {}

  /** Registers a machine; the same machine may do so again. */
  enrollNode = async (request: EnrollNodeRequest): Promise<EnrollNodeResponse> => {
    const { state, clock } = this.deps;
    const refused = [...(request.csr.length > 0 ? ['csr'] : []), ...(request.token === '' ? [] : ['token'])];
    if (refused.length > 0) {
      throw new CloudlessError(
        'unimplemented',
        `${refused.join(', ')}: this cluster has no identities; enrol without ${refused.join(' and ')}`,
      );
    }
    const answer = create(EnrollNodeResponseSchema, { nodeId: request.nodeId, clusterId: state.clusterId });
    const existing = state.view().node(request.nodeId);
    if (existing?.value.instanceId === request.instanceId) return answer;
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
    await state.commit(
      state
        .transaction()
        .require('node', record.id, 'absent')
        .put('node', record.id, record)
        .event({ ...about(record), reason: 'NodeEnrolled', message: `node ${record.id} was enrolled` }),
    );
    return answer;
  };

  getNode = (request: GetNodeRequest): Node => this.picture(this.found(request.nodeId).value);

  listNodes = (request: ListNodesRequest): ListNodesResponse => {
    const selector = parseLabelSelector(request.labelSelector);
    const nodes = [...this.deps.state.view().nodes()]
      .map(({ value }) => value)
      .filter((record) => matchesLabels(selector, this.deps.placements.effective(record).labels))
      .sort((a, b) => (a.id < b.id ? -1 : 1));
    const { items, nextPageToken } = pageOf(nodes, ({ id }) => id, request);
    return create(ListNodesResponseSchema, { nodes: items.map((record) => this.picture(record)), nextPageToken });
  };

  updateNode = (request: UpdateNodeRequest): Promise<Node> => {
    const removals = request.removeTaints.map(parseTaintRemoval);
    return this.change(request.nodeId, (record) => {
      for (const key of request.removeLabels) {
        delete record.labels[key];
        if (!record.removedLabels.includes(key)) record.removedLabels.push(key);
      }
      Object.assign(record.labels, request.setLabels);
      record.removedLabels = record.removedLabels.filter((key) => !Object.hasOwn(request.setLabels, key));
      this.changeTaints(record, request, removals);
      if (request.zone !== undefined) record.zone = request.zone;
      if (request.region !== undefined) record.region = request.region;
      return { reason: 'NodeUpdated', message: `labels, taints or place of node ${record.id} were changed` };
    });
  };

  cordonNode = (request: CordonNodeRequest): Promise<Node> =>
    this.change(request.nodeId, (record) => {
      if (record.cordoned) return undefined;
      record.cordoned = true;
      return { reason: 'NodeCordoned', message: `node ${record.id} takes nothing new` };
    });

  uncordonNode = (request: UncordonNodeRequest): Promise<Node> =>
    this.change(request.nodeId, (record) => {
      if (!record.cordoned && !record.draining) return undefined;
      record.cordoned = false;
      record.draining = false;
      return { reason: 'NodeUncordoned', message: `node ${record.id} is usable again` };
    });

  drainNode = (request: DrainNodeRequest): Promise<Node> =>
    this.change(request.nodeId, (record) => {
      if (record.draining) return undefined;
      record.cordoned = true;
      record.draining = true;
      return { reason: 'NodeDraining', message: `node ${record.id} is being drained` };
    });

  removeNode = async (request: RemoveNodeRequest): Promise<RemoveNodeResponse> => {
    const { state, nodes } = this.deps;
    const node = this.found(request.nodeId);
    const held = [...state.view().replicasOn(request.nodeId)];
    const live = held.filter(({ value }) => holdsResources(value));
    if (!request.force && live.length > 0) {
      throw new CloudlessError(
        'precondition',
        `node "${request.nodeId}" holds ${live.length} replicas; drain it first, or remove it with force`,
      );
    }
    if (nodes.status(request.nodeId).alive) {
      throw new CloudlessError(
        'precondition',
        `node "${request.nodeId}" is connected; stop its agent first, or it would enrol again at once`,
      );
    }
    await this.removeReplicas(request.nodeId);
    await state.commit(
      state
        .transaction()
        .require('node', request.nodeId, node)
        .delete('node', request.nodeId)
        .event({ ...about(node.value), reason: 'NodeRemoved', message: `node ${request.nodeId} was removed` }),
    );
    // One that was placed there while the others went; now that the node is gone, no more can be.
    await this.removeReplicas(request.nodeId);
    nodes.forget(request.nodeId);
    return create(RemoveNodeResponseSchema);
  };

  /** The node as users see it. */
  picture(record: NodeRecord): Node {
    const { nodes, placements } = this.deps;
    const now = nodes.status(record.id);
    const { hello } = record;
    const { region, zone, labels, taints } = placements.effective(record);
    const allocated = placements.allocatedOn(record.id);
    const condition = (type: ConditionType, status: boolean, reason = '') => create(ConditionSchema, { type, status, reason });
    return create(NodeSchema, {
      id: record.id,
      region,
      zone,
      labels: { ...labels },
      taints,
      cordoned: record.cordoned,
      draining: record.draining,
      ...(record.createdAt === undefined ? {} : { createdAt: record.createdAt }),
      status: create(NodeStatusSchema, {
        phase: now.phase,
        reason: now.reason,
        conditions: [
          condition(ConditionType.READY, now.alive, now.reason),
          condition(ConditionType.MEMORY_PRESSURE, now.memoryPressure),
          condition(ConditionType.DISK_PRESSURE, now.diskPressure),
          condition(ConditionType.NETWORK_UNAVAILABLE, now.networkUnavailable),
          condition(ConditionType.QUARANTINED, now.quarantined),
        ],
        allocated: create(NodeCapacitySchema, { cpuMillis: allocated.cpuMillis, memoryBytes: BigInt(allocated.memoryBytes) }),
        replicaCount: allocated.replicas,
        capabilities: hello?.capabilities ?? [],
        maxReplicas: hello?.maxReplicas ?? 0,
        agentVersion: hello?.agentVersion ?? '',
        architecture: hello?.architecture ?? '',
        operatingSystem: hello?.operatingSystem ?? '',
        agentAddress: hello?.agentAddress ?? '',
        reliability: now.reliability,
        ...(hello?.capacity === undefined ? {} : { capacity: hello.capacity }),
        ...(hello?.reserved === undefined ? {} : { reserved: hello.reserved }),
        ...(now.usage === undefined ? {} : { usage: now.usage }),
        ...(now.connectedSinceMs === undefined || !now.alive ? {} : { connectedSince: timestampFromMs(now.connectedSinceMs) }),
        ...(now.lastSeenMs === undefined ? {} : { lastSeen: timestampFromMs(now.lastSeenMs) }),
      }),
    });
  }

  private changeTaints(record: NodeRecord, request: UpdateNodeRequest, removals: readonly TaintRemoval[]): void {
    const { taintKey, effective } = this.deps.placements;
    const doomed = effective(record).taints.filter((taint) => removals.some((removal) => matchesRemoval(taint, removal)));
    record.taints = record.taints.filter((taint) => !doomed.some((gone) => taintKey(gone) === taintKey(taint)));
    record.removedTaints = [...new Set([...record.removedTaints, ...doomed.map(taintKey)])];
    for (const taint of request.setTaints) {
      record.taints = [...record.taints.filter((other) => taintKey(other) !== taintKey(taint)), taint];
      record.removedTaints = record.removedTaints.filter((key) => key !== taintKey(taint));
    }
  }

  private async removeReplicas(nodeId: string): Promise<void> {
    const { state } = this.deps;
    for (;;) {
      const held = [...state.view().replicasOn(nodeId)].slice(0, MAX_REMOVED_PER_COMMIT);
      if (held.length === 0) return;
      const transaction = state.transaction();
      for (const { value } of held) transaction.delete('replica', replicaKeyId(value.uid, value.sequence));
      await state.commit(transaction);
    }
  }

  /** @param apply - Changes the copy it is given; returns the event, or undefined when there is nothing to change. */
  private async change(
    nodeId: string,
    apply: (record: NodeRecord) => Pick<EventInit, 'reason' | 'message'> | undefined,
  ): Promise<Node> {
    return withoutConflict(this.deps.state, MAX_ATTEMPTS, async () => {
      const current = this.found(nodeId);
      const record = clone(NodeRecordSchema, current.value);
      const event = apply(record);
      if (event === undefined) return this.picture(current.value);
      const transaction = this.deps.state.transaction().require('node', nodeId, current).put('node', nodeId, record);
      await this.deps.state.commit(transaction.event({ ...about(record), ...event }));
      return this.picture(record);
    });
  }

  private found(nodeId: string): Stored<NodeRecord> {
    const node = this.deps.state.view().node(nodeId);
    if (node !== undefined) return node;
    throw new CloudlessError('notFound', `node "${nodeId}" not found`);
  }
}

function about(record: NodeRecord) {
  return { severity: Severity.INFO, category: Category.MEMBERSHIP, nodeId: record.id };
}

interface TaintRemoval {
  readonly key: string;
  readonly effect: Taint_Effect | undefined;
}

function parseTaintRemoval(text: string, index: number): TaintRemoval {
  const [key = '', effect] = text.split(':');
  if (effect === undefined) return { key, effect: undefined };
  const known = Taint_Effect[effect as keyof typeof Taint_Effect];
  if (typeof known === 'number') return { key, effect: known };
  throw new InvalidInputError([
    {
      field: `remove_taints[${index}]`,
      message: `"${effect}" is no effect; write NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE`,
    },
  ]);
}

function matchesRemoval(taint: { readonly key: string; readonly effect: Taint_Effect }, removal: TaintRemoval): boolean {
  return taint.key === removal.key && (removal.effect === undefined || taint.effect === removal.effect);
}
