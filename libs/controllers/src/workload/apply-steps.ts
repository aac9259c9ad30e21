import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { ReplicaStatus_Phase as Phase, resolveDisconnectTimes } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { replicaIdOf, toWorkloadId } from '@cloudless/base';
import {
  copyReplica,
  getNextOrderRevision,
  createReplicaRecord,
  isLive,
  toCanonicalVersion,
  type Stored,
} from '@cloudless/cluster-state';
import type { RolloutObserved, RolloutStep } from '@cloudless/rollout';
import type { NewPlacement, NewReplicaPlacer, PlacedCreation } from '../placement/new-replicas.js';
import { MAX_PLACED_PER_COMMIT } from '../placement/placement-writer.js';
import { WAITS_FOR_NODE } from '../placement/wait-reason.js';
import { isFinished } from '../replica/finished.js';
import { toDisconnectFields } from './sync-disconnect-policy.js';
import type { SlotBackoffs } from './slot-backoff.js';
import type { ReplicaSteps } from './step-events.js';
import { MAX_REPLICA_WRITES, type WorkloadPass } from './workload-pass.js';

/** The replicas that a decision created and stopped, and the wait for slots in back-off. */
export interface AppliedSteps extends ReplicaSteps {
  /** Milliseconds until the next slot may be filled; undefined when no slot is in back-off. */
  readonly retryDelayMs: number | undefined;
  /** The nodes of the created replicas. Undefined when the placer decides after the creation. */
  readonly placement: PlacedCreation | undefined;
}

type CreateStep = Extract<RolloutStep, { readonly kind: 'createReplica' }>;

/**
 * The steps of one decision, which are added to one transaction after the other. Any prefix of a
 * decision is safe. Only creations may be added to a transaction after the first: a stop is judged
 * on the state of its own transaction.
 */
export class StepQueue {
  /** The replicas that steps stop, by id. */
  private readonly byId: ReadonlyMap<string, Stored<ReplicaRecord>>;
  private readonly slotOfNode: ReadonlyMap<string, number>;
  private readonly slots: FreeSlots;
  /** The version of the new replicas; undefined when their nodes are chosen after the commit. */
  private readonly newVersion: number | undefined;
  /** Common fields of the new replicas, by version. */
  private readonly blueprints = new Map<number, ReplicaRecord>();
  private next = 0;
  /** The nodes that are chosen and not all taken; undefined when the placer chooses them. */
  private placement: NewPlacement | undefined;

  /**
   * @param pass - The pass that made the decision.
   * @param now - The current time, and the revision of the view for the stop orders.
   * @param newReplicas - Chooses nodes in the transaction of the creation. Default: the placer
   *   decides after the creation.
   */
  constructor(
    pass: WorkloadPass,
    private readonly steps: readonly RolloutStep[],
    private readonly backoffs: SlotBackoffs,
    private readonly now: { readonly wallTimeMs: number; readonly revision: bigint },
    private readonly newReplicas?: Pick<NewReplicaPlacer, 'choose'>,
  ) {
    this.byId = findStopped(pass, steps);
    const creates = steps.some(({ kind }) => kind === 'createReplica');
    this.newVersion = findNewVersion(steps);
    this.slotOfNode = creates ? findSlotsOfNodes(pass, steps) : new Map();
    this.slots = new FreeSlots(
      creates ? pass.replicas.map(({ value }) => value).filter(createSlotFilter(pass)) : [],
      new Set(this.slotOfNode.values()),
      creates ? pass.waiting?.createSlotTest() : undefined,
    );
  }

  /** True when every step has been added to a transaction. */
  get isEmpty(): boolean {
    return this.next >= this.steps.length;
  }

  /** True when the next step creates a replica. */
  get continuesWithCreation(): boolean {
    return this.steps[this.next]?.kind === 'createReplica';
  }

  /**
   * Adds steps to the transaction of `pass`, up to {@link MAX_REPLICA_WRITES}.
   * @param pass - The pass that made the decision, or its continuation with another transaction.
   * @param createsOnly - True to stop before the first step that is no creation.
   */
  apply(pass: WorkloadPass, createsOnly = false): AppliedSteps {
    const created: ReplicaRecord[] = [];
    const stopped: ReplicaRecord[] = [];
    let retryDelayMs: number | undefined;
    this.preparePlacement(pass);
    const placement = this.placement?.startCreation();
    const limit = placement === undefined ? MAX_REPLICA_WRITES : MAX_PLACED_PER_COMMIT;
    for (; created.length + stopped.length < limit; this.next += 1) {
      const step = this.steps[this.next];
      if (step === undefined || (createsOnly && step.kind !== 'createReplica')) break;
      if (step.kind === 'createReplica') {
        const slot = this.slots.allocate(
          step.nodeId === undefined ? undefined : this.slotOfNode.get(step.nodeId),
        );
        const waitMs = this.backoffs.getWaitMs(slot);
        if (waitMs > 0) retryDelayMs = Math.min(retryDelayMs ?? waitMs, waitMs);
        else created.push(this.createReplica(pass, step, slot, placement));
      } else if (step.kind === 'stopReplica') {
        const replica = this.byId.get(step.replicaId);
        if (replica === undefined) continue;
        stopReplica(pass, replica, this.now.revision);
        stopped.push(replica.value);
      }
    }
    return { created, stopped, retryDelayMs, placement };
  }

  /** Gives back the nodes that were reserved for replicas of this decision and not committed. */
  close(): void {
    this.placement?.close();
    this.placement = undefined;
  }

  /** Chooses nodes for the next replicas, if the nodes are chosen before the commit. */
  private preparePlacement(pass: WorkloadPass): void {
    if (this.placement?.isUsedUp === false) return;
    this.close();
    if (this.newVersion === undefined || this.isEmpty) return;
    const version = selectRecordedVersion(pass, this.newVersion);
    this.placement = this.newReplicas?.choose(pass, version, this.steps.length - this.next);
  }

  /** @param placement - Undefined when the placer chooses the node after the creation. */
  private createReplica(
    pass: WorkloadPass,
    { version, nodeId: onlyNodeId = '' }: CreateStep,
    slot: number,
    placement: PlacedCreation | undefined,
  ): ReplicaRecord {
    const { transaction, nextControl, workload } = pass;
    const sequence = nextControl.nextSequence;
    nextControl.nextSequence += 1n;
    let blueprint = this.blueprints.get(version);
    if (blueprint === undefined) {
      blueprint = createBlueprint(pass, version, this.now.wallTimeMs);
      this.blueprints.set(version, blueprint);
    }
    const node = placement?.takeNextNode();
    // The model of the scheduler keeps the id too: the same text takes no memory twice.
    const id = node?.replicaId ?? replicaIdOf(toWorkloadId(workload.value.uid), Number(sequence));
    const replica = copyReplica(blueprint, { id, sequence, slot, onlyNodeId });
    if (node !== undefined) placement?.assignNode(replica, node);
    transaction.createReplica(replica);
    return replica;
  }
}

/**
 * Adds the workload's readiness guard to the conditions of the commit when the pass stops a replica
 * that serves or may serve, or makes another version the active version. A concurrent readiness
 * loss then fails the commit, and the workload is reconciled again.
 */
export function requireReadinessGuard(
  pass: WorkloadPass,
  observed: RolloutObserved,
  steps: readonly RolloutStep[],
): void {
  const stopped = listStoppedIds(steps);
  const dependsOnReadiness =
    steps.some(({ kind }) => kind === 'switchVersion') ||
    (stopped.size > 0 &&
      observed.replicas.some(
        ({ id, available, notYetAvailable }) =>
          (available || notYetAvailable === true) && stopped.has(id),
      ));
  const becomesActive = pass.nextControl.activeVersion !== pass.control.value.activeVersion;
  if (dependsOnReadiness || becomesActive)
    pass.transaction.require('evidence', pass.workload.value.uid, pass.readinessGuard);
}

/** Returns the ids of the replicas that steps stop. */
function listStoppedIds(steps: readonly RolloutStep[]): ReadonlySet<string> {
  const ids = new Set<string>();
  for (const step of steps) if (step.kind === 'stopReplica') ids.add(step.replicaId);
  return ids;
}

/**
 * Returns the version of the replicas that steps create, if nodes can be chosen before the commit.
 * Undefined when the steps create no replica, replicas of several versions, or replicas for given
 * nodes, and when they stop replicas: the model of the scheduler counts these as leaving from the
 * commit on, and the choice of the nodes depends on that.
 */
function findNewVersion(steps: readonly RolloutStep[]): number | undefined {
  let found: number | undefined;
  for (const step of steps) {
    if (step.kind === 'stopReplica') return undefined;
    if (step.kind !== 'createReplica') continue;
    if (step.nodeId !== undefined || (found ?? step.version) !== step.version) return undefined;
    found = step.version;
  }
  return found;
}

function findStopped(
  { replicas }: WorkloadPass,
  steps: readonly RolloutStep[],
): ReadonlyMap<string, Stored<ReplicaRecord>> {
  const ids = listStoppedIds(steps);
  const found = new Map<string, Stored<ReplicaRecord>>();
  if (ids.size > 0)
    for (const replica of replicas)
      if (ids.has(replica.value.id)) found.set(replica.value.id, replica);
  return found;
}

/** Creates what the new replicas of one version share; the other fields follow for each replica. */
function createBlueprint(pass: WorkloadPass, version: number, wallTimeMs: number): ReplicaRecord {
  const { uid, spec } = pass.workload.value;
  return createReplicaRecord({
    uid,
    version: selectRecordedVersion(pass, version),
    desiredRunning: true,
    phase: Phase.PENDING,
    reason: WAITS_FOR_NODE,
    ...toDisconnectFields(resolveDisconnectTimes(spec)),
    createdAt: timestampFromMs(wallTimeMs),
  });
}

/**
 * Returns the version number for a new replica. The planner uses the oldest version with the same
 * template, whose record may have been deleted; the wanted version and the active version always
 * have a record.
 */
function selectRecordedVersion(
  { view, nextControl, workload }: WorkloadPass,
  version: number,
): number {
  const { uid } = workload.value;
  const recordedVersions = [workload.value.version, nextControl.activeVersion];
  return (
    recordedVersions.find((candidate) => toCanonicalVersion(view, uid, candidate) === version) ??
    version
  );
}

/**
 * Orders a replica to stop, or deletes the record of a replica without a node.
 * @param revision - Revision of the view, for the order.
 */
export function stopReplica(
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
    : toCanonicalVersion(view, value.uid, value.version) ===
        toCanonicalVersion(view, value.uid, workload.value.version)
      ? 'scaled down or moved'
      : 'replaced by another version';
  const orderRevision = getNextOrderRevision({ revision }, value);
  transaction.updateReplica(
    replica,
    copyReplica(value, { desiredRunning: false, stopReason, orderRevision }),
  );
}

/**
 * Returns a filter for the replicas that occupy their slots. A stopping replica frees its slot at
 * once, except under the disconnect policy EXCLUSIVE, where at most one process may run in each
 * slot: there, a stopping replica frees its slot when it has ended.
 */
function createSlotFilter({ workload, view }: WorkloadPass): (replica: ReplicaRecord) => boolean {
  const exclusive = resolveDisconnectTimes(workload.value.spec).stopAfterMs !== undefined;
  return (replica) =>
    (replica.desiredRunning && (isLive(replica) || isFinished(view, workload.value, replica))) ||
    (isLive(replica) && !replica.lost && (exclusive || replica.stopAfter !== undefined));
}

/**
 * Returns the slot of the newest replica on each node that a step names. A GLOBAL workload reuses
 * this slot, so that each node has its own back-off.
 */
function findSlotsOfNodes(
  { replicas }: WorkloadPass,
  steps: readonly RolloutStep[],
): ReadonlyMap<string, number> {
  const nodeIds = new Set<string>();
  for (const step of steps)
    if (step.kind === 'createReplica' && step.nodeId !== undefined) nodeIds.add(step.nodeId);
  const slots = new Map<string, number>();
  if (nodeIds.size === 0) return slots;
  for (const { value } of replicas)
    if (nodeIds.has(value.onlyNodeId)) slots.set(value.onlyNodeId, value.slot);
  return slots;
}

/** Allocates slots that no replica occupies, lowest first. */
class FreeSlots {
  private readonly occupied: Set<number>;
  /** No slot below this one is free, except reserved ones. */
  private lowest = 0;

  /**
   * @param reserved - Slots that {@link allocate} returns only as `preferred`.
   * @param isOccupied - Returns true for the slots of further replicas. Default: there are none.
   */
  constructor(
    replicas: readonly ReplicaRecord[],
    private readonly reserved: ReadonlySet<number>,
    private readonly isOccupied: (slot: number) => boolean = () => false,
  ) {
    this.occupied = new Set(replicas.map(({ slot }) => slot));
  }

  /**
   * Returns `preferred` when it is free, else the lowest free slot.
   * @param preferred - A reserved slot.
   */
  allocate(preferred?: number): number {
    if (preferred !== undefined && !this.occupied.has(preferred)) {
      this.occupied.add(preferred);
      return preferred;
    }
    while (!this.isFree(this.lowest)) this.lowest += 1;
    this.lowest += 1;
    return this.lowest - 1;
  }

  private isFree(slot: number): boolean {
    return !this.occupied.has(slot) && !this.reserved.has(slot) && !this.isOccupied(slot);
  }
}
