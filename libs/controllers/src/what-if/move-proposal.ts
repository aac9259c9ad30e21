import { create } from '@bufbuild/protobuf';
import {
  ProposeMovesResponseSchema,
  ProposedMoveSchema,
  WorkloadSpecSchema,
  isRolledOut,
  type ProposeMovesRequest,
  type ProposeMovesResponse,
  type ProposedMove,
} from '@cloudless/api';
import type { ReplicaRecord, WorkloadRecord } from '@cloudless/api/store';
import { toNodeId, toReplicaId } from '@cloudless/base';
import { getZone, holdsResources } from '@cloudless/cluster-state';
import { formatReplicaCount } from '@cloudless/rollout';
import type { Cluster } from '@cloudless/scheduler';
import { PlacementBudget } from '../dry-run/placement-budget.js';
import { placeAway } from '../placement/place-away.js';
import { toPlacementRequest, toReservation } from '../placement/scheduler-input.js';
import { isGlobal } from '../rollout/global-targets.js';
import { movesStopFirst } from '../rollout/rollout-input.js';
import type { SimulationSource } from '../dry-run/simulation-source.js';
import { SIMULATION_LIMITS } from './cluster-simulation.js';
import { copyModel } from './copy-model.js';

const NO_SPEC = create(WorkloadSpecSchema);
const DEFAULT_MAX_MOVES = 16;
/** Work after which a search lets other work run, in node evaluations. */
const SLICE_WORK = 5_000;
/** Smallest difference between two numbers of replicas that a move makes smaller. */
const MIN_GAIN = 2;

/** A replica with a node. */
interface PlacedReplica {
  readonly record: ReplicaRecord;
  readonly nodeId: string;
  readonly zone: string;
}

/**
 * Searches for moves of replicas that make the spread of their workloads more even.
 * @returns The moves. Yields whenever other work should run before the search continues.
 */
export function* proposeMoves(
  source: SimulationSource,
  request: Pick<ProposeMovesRequest, 'maxMoves' | 'namespace'>,
): Generator<void, ProposeMovesResponse> {
  const model = yield* copyModel(source);
  return yield* new MoveProposal(source, model, request).run();
}

/**
 * Searches for moves of replicas that make the spread of their workloads more even. The scheduler
 * chooses the new node as in the execution of the move: while the replica still holds its old node,
 * or after its end where a move stops first, and away from the nodes that replicas leave. Workloads
 * whose rollout is in progress, that are deleted, or have mode GLOBAL are left out.
 */
class MoveProposal {
  private readonly budget: PlacementBudget;
  private readonly maxMoves: number;

  constructor(
    private readonly source: SimulationSource,
    /** A copy of the model of the source. The search changes the copy. */
    private readonly model: Cluster,
    private readonly request: Pick<ProposeMovesRequest, 'maxMoves' | 'namespace'>,
  ) {
    this.budget = new PlacementBudget([...source.view.nodes()].length, SIMULATION_LIMITS);
    this.maxMoves = request.maxMoves === 0 ? DEFAULT_MAX_MOVES : request.maxMoves;
  }

  *run(): Generator<void, ProposeMovesResponse> {
    const workloads = this.listUneven();
    const moves: ProposedMove[] = [];
    let notExamined = 0;
    let examinedAt = 0;
    for (const { workload, replicas } of workloads) {
      if (moves.length >= this.maxMoves) break;
      if (this.budget.evaluations - examinedAt >= SLICE_WORK) {
        examinedAt = this.budget.evaluations;
        yield;
      }
      this.budget.beginSlice();
      moves.push(...this.moveReplicas(workload, replicas, this.maxMoves - moves.length));
      if (this.budget.isExhausted) notExamined += 1;
    }
    moves.sort((a, b) => b.gain - a.gain);
    return create(ProposeMovesResponseSchema, {
      moves,
      revision: this.source.view.revision,
      gain: moves.reduce((sum, { gain }) => sum + gain, 0),
      notExamined,
    });
  }

  /** Returns the workloads that a move may improve, the most uneven first. */
  private listUneven() {
    const { view } = this.source;
    const found = [];
    for (const { value: workload } of view.workloads()) {
      const { namespace, uid, deletionRequestedAt } = workload;
      if (this.request.namespace !== '' && namespace !== this.request.namespace) continue;
      if (deletionRequestedAt !== undefined || isGlobal(workload.spec)) continue;
      if (!isRolledOut(view.control(uid)?.value.rolloutPhase)) continue;
      const replicas = [...view.replicasOf(uid)]
        .map(({ value }) => value)
        .filter((replica) => replica.desiredRunning && replica.ready && holdsResources(replica))
        .map((record) => this.toPlaced(record, record.nodeId));
      const most = Math.max(0, ...countBy(replicas, ({ zone }) => zone).values());
      const mostOnNode = Math.max(0, ...countBy(replicas, ({ nodeId }) => nodeId).values());
      if (most >= MIN_GAIN) found.push({ workload, replicas, most, mostOnNode });
    }
    return found.sort(
      (a, b) =>
        b.most - a.most ||
        b.mostOnNode - a.mostOnNode ||
        (a.workload.uid < b.workload.uid ? -1 : 1),
    );
  }

  /** Moves replicas of one workload in the model, one after the other, while there is a gain. */
  private moveReplicas(
    workload: WorkloadRecord,
    replicas: PlacedReplica[],
    limit: number,
  ): readonly ProposedMove[] {
    const moves: ProposedMove[] = [];
    while (moves.length < limit && this.budget.consumeDecision()) {
      const zones = countBy(replicas, ({ zone }) => zone);
      const nodes = countBy(replicas, ({ nodeId }) => nodeId);
      // The replica of the fullest zone, there of the fullest node, that has run for the least
      // time.
      const [candidate] = [...replicas]
        .filter(({ record, nodeId }) => record.nodeId === nodeId)
        .sort(
          (a, b) =>
            getCount(zones, b.zone) - getCount(zones, a.zone) ||
            getCount(nodes, b.nodeId) - getCount(nodes, a.nodeId) ||
            Number(b.record.sequence - a.record.sequence),
        );
      if (candidate === undefined) break;
      const leftNodeIds = moves.map(({ fromNodeId }) => fromNodeId);
      const move = this.findMove(workload, candidate, zones, nodes, leftNodeIds);
      if (move === undefined) break;
      moves.push(move);
      this.applyMove(workload, candidate, move.toNodeId);
      replicas[replicas.indexOf(candidate)] = this.toPlaced(candidate.record, move.toNodeId);
    }
    return moves;
  }

  private findMove(
    workload: WorkloadRecord,
    { record, nodeId, zone }: PlacedReplica,
    zones: ReadonlyMap<string, number>,
    nodes: ReadonlyMap<string, number>,
    leftNodeIds: readonly string[],
  ): ProposedMove | undefined {
    const endsFirst = movesStopFirst(workload.spec ?? NO_SPEC);
    if (endsFirst) this.model.release(toReplicaId(record.id));
    const [placement] = placeAway(
      this.model,
      this.toRequest(workload, record),
      1,
      [...leftNodeIds, nodeId].map(toNodeId),
    );
    if (endsFirst) this.reserve(workload, record);
    if (placement?.placed !== true) return undefined;
    const target = this.toPlaced(record, placement.nodeId);
    const isOtherZone = target.zone !== zone;
    const [from, to] = isOtherZone
      ? [getCount(zones, zone), getCount(zones, target.zone)]
      : [getCount(nodes, nodeId), getCount(nodes, target.nodeId)];
    if (from - to < MIN_GAIN || target.nodeId === nodeId) return undefined;
    const [fromName, toName] = isOtherZone
      ? [`zone ${zone}`, `zone ${target.zone}`]
      : [`node ${nodeId}`, `node ${target.nodeId}`];
    return create(ProposedMoveSchema, {
      namespace: workload.namespace,
      name: workload.name,
      replicaId: record.id,
      fromNodeId: nodeId,
      fromZone: zone,
      toNodeId: target.nodeId,
      toZone: target.zone,
      reason: `${toName} has ${formatReplicaCount(to)} and ${fromName} has ${from}`,
      gain: from - to,
    });
  }

  private applyMove(workload: WorkloadRecord, { record }: PlacedReplica, nodeId: string): void {
    this.model.release(toReplicaId(record.id));
    this.reserve(workload, { ...record, nodeId });
  }

  private reserve(workload: WorkloadRecord, record: ReplicaRecord): void {
    const template = this.getTemplate(workload, record);
    this.model.reserve(toReservation(workload, record, template));
  }

  private toRequest(workload: WorkloadRecord, record: ReplicaRecord) {
    return toPlacementRequest(workload, this.getTemplate(workload, record));
  }

  private getTemplate(workload: WorkloadRecord, { uid, version }: ReplicaRecord) {
    return this.source.view.version(uid, version)?.template ?? workload.spec ?? NO_SPEC;
  }

  private toPlaced(record: ReplicaRecord, nodeId: string): PlacedReplica {
    const node = this.source.view.node(nodeId)?.value;
    return { record, nodeId, zone: node === undefined ? '' : getZone(node) };
  }
}

function countBy(
  replicas: readonly PlacedReplica[],
  toKey: (replica: PlacedReplica) => string,
): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const replica of replicas) counts.set(toKey(replica), getCount(counts, toKey(replica)) + 1);
  return counts;
}

function getCount(counts: ReadonlyMap<string, number>, key: string): number {
  return counts.get(key) ?? 0;
}
