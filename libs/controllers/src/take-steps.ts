import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaStatus_Phase as Phase, disconnectTimesOf } from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { replicaIdOf, toWorkloadId } from '@cloudless/base';
import { canonicalVersion, copyReplica, isLive, type Stored } from '@cloudless/cluster-state';
import type { RolloutObserved, RolloutStep } from '@cloudless/rollout';
import { toDisconnectFields } from './follow-disconnect.js';
import type { SlotBackoffs } from './slot-backoff.js';
import type { StepsTaken } from './step-events.js';
import {
  isFinal,
  MAX_REPLICA_WRITES,
  WAITS_FOR_A_NODE,
  type WorkloadPass,
} from './workload-pass.js';

/** The replicas that a decision created and stopped, and the wait for slots in back-off. */
export interface TakenSteps extends StepsTaken {
  /** Milliseconds until the next slot may be filled; undefined when no slot is in back-off. */
  readonly delayMs: number | undefined;
}

/**
 * Adds the steps of a decision to the transaction of the pass, up to {@link MAX_REPLICA_WRITES}.
 * Any prefix of a decision is safe; the next pass decides the rest anew.
 */
export function takeSteps(
  pass: WorkloadPass,
  steps: readonly RolloutStep[],
  backoffs: SlotBackoffs,
  now: { readonly wallTimeMs: number; readonly revision: bigint },
): TakenSteps {
  const byId = new Map<string, Stored<ReplicaRecord>>(
    pass.replicas.map((replica) => [replica.value.id, replica]),
  );
  const ownSlots = slotsOfNodes(pass, steps);
  const slots = new FreeSlots(
    pass.replicas.map(({ value }) => value).filter(takesSlot(pass)),
    new Set(ownSlots.values()),
  );
  const created: ReplicaRecord[] = [];
  const stopped: ReplicaRecord[] = [];
  let delayMs: number | undefined;
  for (const step of steps) {
    if (created.length + stopped.length >= MAX_REPLICA_WRITES) break;
    if (step.kind === 'createReplica') {
      const slot = slots.take(step.nodeId === undefined ? undefined : ownSlots.get(step.nodeId));
      const waitMs = backoffs.waitMs(slot);
      if (waitMs > 0) {
        delayMs = Math.min(delayMs ?? waitMs, waitMs);
        continue;
      }
      created.push(createReplica(pass, step, slot, now.wallTimeMs));
    } else if (step.kind === 'stopReplica') {
      const replica = byId.get(step.replicaId);
      if (replica === undefined) continue;
      stopReplica(pass, replica, now.revision);
      stopped.push(replica.value);
    }
  }
  return { created, stopped, delayMs };
}

/**
 * Adds the workload's readiness guard to the condition of the commit when the pass stops a replica
 * that serves or may serve, switches versions, or completes the rollout. A replica that stops being
 * ready at the same moment then fails the commit, and the workload is reconciled again.
 */
export function requireEvidence(
  pass: WorkloadPass,
  observed: RolloutObserved,
  steps: readonly RolloutStep[],
): void {
  const serving = observed.replicas.filter((replica) => replica.ready || replica.unproven === true);
  const ids = new Set<string>(serving.map(({ id }) => id));
  const rests = steps.some(
    (step) =>
      step.kind === 'switchVersion' || (step.kind === 'stopReplica' && ids.has(step.replicaId)),
  );
  const becomesActive = pass.next.activeVersion !== pass.control.value.activeVersion;
  if (rests || becomesActive)
    pass.transaction.require('evidence', pass.workload.value.uid, pass.evidence);
}

function createReplica(
  pass: WorkloadPass,
  { version, nodeId = '' }: { readonly version: number; readonly nodeId?: string },
  slot: number,
  wallTimeMs: number,
): ReplicaRecord {
  const { transaction, next, workload } = pass;
  const sequence = next.nextSequence;
  next.nextSequence += 1n;
  const replica = create(ReplicaRecordSchema, {
    id: replicaIdOf(toWorkloadId(workload.value.uid), Number(sequence)),
    uid: workload.value.uid,
    sequence,
    slot,
    version: namedVersion(pass, version),
    onlyNodeId: nodeId,
    desiredRunning: true,
    phase: Phase.PENDING,
    reason: WAITS_FOR_A_NODE,
    ...toDisconnectFields(disconnectTimesOf(workload.value.spec)),
    createdAt: timestampFromMs(wallTimeMs),
  });
  transaction.createReplica(replica);
  return replica;
}

/**
 * The version number that a new replica gets. The planner uses the oldest version with the same
 * template, whose record may be gone; the wanted version and the active version always have a
 * record.
 */
function namedVersion({ view, next, workload }: WorkloadPass, version: number): number {
  const { uid } = workload.value;
  const kept = [workload.value.version, next.activeVersion];
  return kept.find((candidate) => canonicalVersion(view, uid, candidate) === version) ?? version;
}

function stopReplica(
  { transaction, deleting, workload, view }: WorkloadPass,
  replica: Stored<ReplicaRecord>,
  revision: bigint,
): void {
  const { value } = replica;
  if (value.nodeId === '') {
    transaction.deleteReplica(replica);
    return;
  }
  const stopReason = deleting
    ? 'the workload is being deleted'
    : canonicalVersion(view, value.uid, value.version) ===
        canonicalVersion(view, value.uid, workload.value.version)
      ? 'scaled down or moved'
      : 'replaced by another version';
  transaction.updateReplica(
    replica,
    copyReplica(value, { desiredRunning: false, stopReason, orderRevision: revision }),
  );
}

/**
 * Tells which replicas occupy their slots. A stopping replica frees its slot at once, except under
 * the disconnect policy EXCLUSIVE, where at most one process may run in each slot: there, it frees
 * the slot when it has ended.
 */
function takesSlot({ workload, view }: WorkloadPass): (replica: ReplicaRecord) => boolean {
  const exclusive = disconnectTimesOf(workload.value.spec).stopAfterMs !== undefined;
  return (replica) =>
    (replica.desiredRunning && (isLive(replica) || isFinal(view, workload.value, replica))) ||
    (isLive(replica) && !replica.lost && (exclusive || replica.stopAfter !== undefined));
}

/**
 * The slot of the latest replica on each node that a step names. A GLOBAL workload reuses the slot
 * of the node, so that each node has its own back-off.
 */
function slotsOfNodes(
  { replicas }: WorkloadPass,
  steps: readonly RolloutStep[],
): ReadonlyMap<string, number> {
  const wanted = new Set(
    steps.map((step) => (step.kind === 'createReplica' ? step.nodeId : undefined)),
  );
  const slots = new Map<string, number>();
  for (const { value } of replicas)
    if (wanted.has(value.onlyNodeId)) slots.set(value.onlyNodeId, value.slot);
  return slots;
}

/** Allocates slots that no replica occupies, lowest first. */
class FreeSlots {
  private readonly used: Set<number>;
  private lowest = 0;

  /** @param kept - Slots that are allocated only when `take` names them. */
  constructor(
    replicas: readonly ReplicaRecord[],
    private readonly kept: ReadonlySet<number>,
  ) {
    this.used = new Set(replicas.map(({ slot }) => slot));
  }

  take(own?: number): number {
    if (own !== undefined && !this.used.has(own)) {
      this.used.add(own);
      return own;
    }
    while (this.used.has(this.lowest) || this.kept.has(this.lowest)) this.lowest += 1;
    this.used.add(this.lowest);
    return this.lowest;
  }
}
