import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import type { Controllers } from '@cloudless/controllers';
import type { ClusterState } from '@cloudless/cluster-state';
import type { CheckedView } from '../parts/records.js';
import type { SimNode } from '../parts/sim-node.js';
import { factsOf } from './rollout-facts.js';
import type { RunningContainer } from './container-checker.js';

/** CLD-REQ-012: what the scheduler has booked is what the records say. */
export function wrongBookings({
  controllers,
  state,
}: {
  readonly controllers: Controllers;
  readonly state: ClusterState;
}): readonly string[] {
  return [...state.view().nodes()].flatMap(({ value: { id } }) => {
    const [booked, held] = [
      JSON.stringify(controllers.bookedOn(id)),
      JSON.stringify(controllers.placements.allocatedOn(id)),
    ];
    return booked === held
      ? []
      : [`${id}: the scheduler has booked ${booked}, the records say ${held}`];
  });
}

/** What {@link unconverged} compares. */
export interface Picture {
  readonly records: CheckedView;
  readonly running: Iterable<RunningContainer>;
  readonly nodes: Iterable<SimNode>;
  /**
   * Nobody has removed the destroyed machines: what was given up with them is still written down.
   * Default false.
   */
  readonly deadAreKept?: boolean;
}

/**
 * 8, 12: what is not as it should be once all faults have ended: in the records, on the machines,
 * in the agents' memory.
 */
export function unconverged({
  records,
  running,
  nodes,
  deadAreKept = false,
}: Picture): readonly string[] {
  const wanted = new Map<string, string>();
  const problems = [...records.workloads()].flatMap(({ value: workload }) => {
    if (workload.deletionRequestedAt !== undefined) return [`${workload.name} is not deleted yet`];
    const facts = factsOf(records, workload);
    const { live, limits } = facts;
    const good = live.filter(
      (replica) =>
        replica.ready &&
        replica.desiredRunning &&
        facts.canonical(replica.version) === facts.wanted,
    );
    for (const { id, containerId } of good) wanted.set(id, containerId);
    const { want } = limits;
    return good.length === want && live.length === want
      ? []
      : [
          `${workload.name}: ${good.length} of ${want} are right, ${live.length} live: ${live.map(describe).join(', ')}`,
        ];
  });
  const dead = new Set(
    deadAreKept ? [...nodes].flatMap(({ id, isGone }) => (isGone ? [id] : [])) : [],
  );
  for (const { value } of records.replicas()) {
    if (dead.has(value.nodeId) && value.lost) continue;
    if (value.lost) problems.push(`${value.id} on ${value.nodeId} is still a tombstone`);
    if (records.workload(value.uid) === undefined)
      problems.push(`${value.id} is of a workload that is gone`);
  }
  for (const { containerId, owner, node } of running) {
    if (wanted.get(owner.replicaId) === containerId) wanted.delete(owner.replicaId);
    else problems.push(`${node.id} runs a container of ${owner.replicaId} that should not be`);
  }
  for (const replicaId of wanted.keys())
    problems.push(`${replicaId} is ready, and nothing of it runs`);
  for (const node of nodes) problems.push(...leftovers(records, node));
  return problems;
}

/** What an agent remembers of replicas that are no more. */
function leftovers(records: CheckedView, node: SimNode): readonly string[] {
  if (node.isGone) return [];
  return [...node.store.replicas.keys()].flatMap((replicaId) =>
    records.replica(replicaId)?.value.nodeId === node.id
      ? []
      : [`${node.id} still remembers ${replicaId}`],
  );
}

function describe({
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
