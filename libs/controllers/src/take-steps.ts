import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaStatus_Phase as Phase, disconnectTimesOf } from '@cloudless/api';
import { ReplicaRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { replicaIdOf, toWorkloadId } from '@cloudless/base';
import { copyReplica, isLive, replicaKeyId, type Stored } from '@cloudless/cluster-state';
import type { RolloutObserved, RolloutStep } from '@cloudless/rollout';
import { toDisconnectFields } from './follow-disconnect.js';
import type { SlotBackoffs } from './slot-backoff.js';
import type { StepsTaken } from './step-events.js';
import { MAX_REPLICA_WRITES, type WorkloadPass } from './workload-pass.js';

/** What became of the steps of a decision. */
export interface TakenSteps extends StepsTaken {
  /** Milliseconds until the next slot may be filled again; undefined when none waits. */
  readonly delayMs: number | undefined;
}

/** Compares of a transaction: the store takes 100. */
const MAX_COMPARES = 100;

/** Turns the steps of a decision into writes, as many as fit; any prefix of a decision is safe. */
export function takeSteps(
  pass: WorkloadPass,
  steps: readonly RolloutStep[],
  backoffs: SlotBackoffs,
  now: { readonly wallTimeMs: number; readonly revision: bigint },
): TakenSteps {
  const byId = new Map<string, Stored<ReplicaRecord>>(pass.replicas.map((replica) => [replica.value.id, replica]));
  const slots = new FreeSlots(pass.replicas.map(({ value }) => value).filter(takesSlot(pass)));
  const created: ReplicaRecord[] = [];
  const stopped: ReplicaRecord[] = [];
  let delayMs: number | undefined;
  for (const step of steps) {
    if (created.length + stopped.length >= MAX_REPLICA_WRITES) break;
    if (step.kind === 'createReplica') {
      const slot = slots.take();
      const waitMs = backoffs.waitMs(slot);
      if (waitMs > 0) {
        delayMs = Math.min(delayMs ?? waitMs, waitMs);
        continue;
      }
      created.push(createReplica(pass, step.version, slot, now.wallTimeMs));
    } else {
      const replica = byId.get(step.replicaId);
      if (replica === undefined) continue;
      stopReplica(pass, replica, now.revision);
      stopped.push(replica.value);
    }
  }
  return { created, stopped, delayMs };
}

/**
 * Makes the stops of ready replicas hold only while the ready ones that stay are as they were read: a report that takes one
 * of them down at the same moment makes the pass plan anew. Workloads with more of them than a transaction can compare go
 * without; there a stop and the report of a failure may cross.
 */
export function requireEvidence(pass: WorkloadPass, observed: RolloutObserved, steps: readonly RolloutStep[]): void {
  const stopped = new Set<string>(steps.map((step) => (step.kind === 'stopReplica' ? step.replicaId : '')));
  const ready = observed.replicas.filter((replica) => replica.ready && replica.desired === 'running');
  const staying = new Set<string>(ready.map(({ id }) => id).filter((id) => !stopped.has(id)));
  if (observed.minAvailable === 0 || staying.size === ready.length) return;
  // The control record and the workload are still to come.
  if (pass.transaction.compares().length + staying.size + 2 > MAX_COMPARES) return;
  for (const replica of pass.replicas) {
    const { id, uid, sequence } = replica.value;
    if (staying.has(id)) pass.transaction.require('replica', replicaKeyId(uid, sequence), replica);
  }
}

function createReplica(
  { transaction, next, workload }: WorkloadPass,
  version: number,
  slot: number,
  wallTimeMs: number,
): ReplicaRecord {
  const sequence = next.nextSequence;
  next.nextSequence += 1n;
  const replica = create(ReplicaRecordSchema, {
    id: replicaIdOf(toWorkloadId(workload.value.uid), Number(sequence)),
    uid: workload.value.uid,
    sequence,
    slot,
    version,
    desiredRunning: true,
    phase: Phase.PENDING,
    reason: 'waits for a node',
    ...toDisconnectFields(disconnectTimesOf(workload.value.spec)),
    createdAt: timestampFromMs(wallTimeMs),
  });
  transaction.createReplica(replica);
  return replica;
}

function stopReplica({ transaction, deleting, workload }: WorkloadPass, replica: Stored<ReplicaRecord>, revision: bigint): void {
  const { value } = replica;
  if (value.nodeId === '') {
    transaction.deleteReplica(replica);
    return;
  }
  const stopReason = deleting
    ? 'the workload is being deleted'
    : value.version === workload.value.version
      ? 'scaled down or moved'
      : 'replaced by a newer version';
  transaction.updateReplica(replica, copyReplica(value, { desiredRunning: false, stopReason, orderRevision: revision }));
}

/** A leaving replica gives its slot away at once, but in EXCLUSIVE mode, where only one per slot may ever run, when it has ended. */
function takesSlot({ workload }: WorkloadPass): (replica: ReplicaRecord) => boolean {
  const exclusive = disconnectTimesOf(workload.value.spec).stopAfterMs !== undefined;
  return (replica) =>
    replica.desiredRunning || (isLive(replica) && !replica.lost && (exclusive || replica.stopAfter !== undefined));
}

/** Slots that no wanted replica has, lowest first. */
class FreeSlots {
  private readonly used: Set<number>;
  private lowest = 0;

  constructor(replicas: readonly ReplicaRecord[]) {
    this.used = new Set(replicas.map(({ slot }) => slot));
  }

  take(): number {
    while (this.used.has(this.lowest)) this.lowest += 1;
    this.used.add(this.lowest);
    return this.lowest;
  }
}
