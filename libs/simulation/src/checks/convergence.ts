import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { sumAllocated, toRequests, type Controllers } from '@cloudless/controllers';
import type { ClusterState } from '@cloudless/cluster-state';
import { addResources, toResources } from '@cloudless/scheduler';
import type { CheckedView } from '../parts/durable-records.js';
import type { SimNode } from '../parts/sim-node.js';
import { factsOf } from './rollout-facts.js';
import type { RunningContainer } from './container-checker.js';
import { isNominated } from './preemption-checkers.js';

/**
 * CLD-REQ-012: returns the nodes whose reservations in the scheduler, or whose sums for the API,
 * differ from the records.
 */
export function findReservationMismatches({
  controllers,
  state,
}: {
  readonly controllers: Controllers;
  readonly state: ClusterState;
}): readonly string[] {
  return [...state.view().nodes()].flatMap(({ value: { id } }) => {
    const recorded = sumAllocated(state.view(), id);
    return [
      {
        subject: 'the scheduler has reserved',
        sum: controllers.getReserved(id),
        // Placements that are being committed are reserved already.
        expected: controllers.isPlacing
          ? controllers.getReserved(id)
          : addNominations(state.view(), id, recorded),
      },
      {
        subject: 'the API shows',
        sum: controllers.placements.getAllocated(id),
        expected: recorded,
      },
    ]
      .map(({ subject, ...sums }) => ({
        subject,
        sum: JSON.stringify(sums.sum),
        expected: JSON.stringify(sums.expected),
      }))
      .flatMap(({ subject, sum, expected }) =>
        sum === expected ? [] : [`${id}: ${subject} ${sum}, but the records say ${expected}`],
      );
  });
}

/** Adds what waiting replicas hold on a node by their nominations. */
function addNominations(
  view: ReturnType<ClusterState['view']>,
  nodeId: string,
  { replicas, ...held }: ReturnType<typeof sumAllocated>,
): ReturnType<typeof sumAllocated> {
  const requests = [...view.unplaced()].flatMap(({ value }) =>
    isNominated(value) && value.nominatedNodeId === nodeId
      ? [toResources(toRequests(view.version(value.uid, value.version)?.template))]
      : [],
  );
  return { ...requests.reduce(addResources, held), replicas: replicas + requests.length };
}

/** Input of {@link findDifferences}. */
export interface ConvergenceInput {
  readonly records: CheckedView;
  readonly running: Iterable<RunningContainer>;
  readonly nodes: Iterable<SimNode>;
  /**
   * True while destroyed machines are not yet removed, so that records of their lost replicas still
   * exist. Default: false.
   */
  readonly destroyedNodesAreRegistered?: boolean;
}

/**
 * Invariants 8 and 12: returns the differences between desired and observed state after all faults
 * have ended: in the records, on the machines, and in the agents' memory.
 */
export function findDifferences({
  records,
  running,
  nodes,
  destroyedNodesAreRegistered = false,
}: ConvergenceInput): readonly string[] {
  const wanted = new Map<string, string>();
  const problems = [...records.workloads()].flatMap(({ value: workload }) => {
    if (workload.deletionRequestedAt !== undefined) return [`${workload.name} is not deleted yet`];
    const facts = factsOf(records, workload);
    const { live, limits } = facts;
    const settled = live.filter(
      (replica) =>
        replica.ready &&
        replica.desiredRunning &&
        facts.canonicalVersion(replica.version) === facts.wanted,
    );
    for (const { id, containerId } of settled) wanted.set(id, containerId);
    const { want } = limits;
    return settled.length === want && live.length === want
      ? []
      : [
          `${workload.name}: ${settled.length} of ${want} replicas are running as wanted, ${live.length} live: ${live.map(describeReplica).join(', ')}`,
        ];
  });
  const destroyedNodeIds = new Set(
    destroyedNodesAreRegistered
      ? [...nodes].flatMap(({ id, isDestroyed }) => (isDestroyed ? [id] : []))
      : [],
  );
  for (const { value } of records.replicas()) {
    if (destroyedNodeIds.has(value.nodeId) && value.lost) continue;
    if (value.lost) problems.push(`${value.id} on ${value.nodeId} is still a tombstone`);
    if (records.workload(value.uid) === undefined)
      problems.push(`${value.id} belongs to a deleted workload`);
  }
  for (const { containerId, owner, node } of running) {
    if (wanted.get(owner.replicaId) === containerId) wanted.delete(owner.replicaId);
    else problems.push(`${node.id} runs a container of ${owner.replicaId} that is not wanted`);
  }
  for (const replicaId of wanted.keys())
    problems.push(`${replicaId} is ready but has no container`);
  for (const node of nodes) problems.push(...findLeftovers(records, node));
  return problems;
}

/** Returns the replicas that an agent still stores although no record places them on its node. */
function findLeftovers(records: CheckedView, node: SimNode): readonly string[] {
  if (node.isDestroyed) return [];
  return [...node.store.replicas.keys()].flatMap((replicaId) =>
    records.replica(replicaId)?.value.nodeId === node.id
      ? []
      : [`${node.id} still stores ${replicaId}`],
  );
}

function describeReplica({
  id,
  nodeId,
  phase,
  ready,
  desiredRunning,
  version,
  reason,
}: ReplicaRecord): string {
  const state = `${Phase[phase]}${ready ? ' ready' : ''}${desiredRunning ? '' : ' leaving'}`;
  return `${id} v${version} on ${nodeId || 'no node'} ${state}${reason === '' ? '' : ` (${reason})`}`;
}
