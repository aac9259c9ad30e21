import { clone, create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  ReplicaStatus_Phase as Phase,
  RestartPolicy_Policy as RestartMode,
  RolloutStatus_Phase as RolloutPhase,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  type ControlRecord,
  type ReplicaRecord,
  type WorkloadRecord,
} from '@cloudless/api/store';
import {
  WorkQueue,
  errorFields,
  errorKindOf,
  replicaIdOf,
  toWorkloadId,
  type Clock,
  type Log,
  type Random,
  type WorkResult,
} from '@cloudless/base';
import {
  copyReplica,
  isLive,
  nameKeyId,
  versionKeyId,
  type ClusterState,
  type RecordChange,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import { nextSteps, type RolloutDecision, type RolloutStep } from '@cloudless/rollout';
import type { NodeDirectory } from './node-directory.js';
import type { Readiness } from './readiness.js';
import { toRolloutInput } from './rollout-input.js';
import { SlotBackoffs } from './slot-backoff.js';

/** What {@link WorkloadReconciler} works with. */
export interface WorkloadReconcilerDeps {
  readonly state: ClusterState;
  readonly nodes: NodeDirectory;
  readonly readiness: Readiness;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Steps of one commit: with their events and the control record they fit into a transaction of 100. */
const MAX_STEPS_PER_COMMIT = 60;
/** Kept for undo. */
const MAX_VERSIONS = 10;

/** What one pass reads. */
interface Pass {
  readonly workload: Stored<WorkloadRecord>;
  readonly control: Stored<ControlRecord>;
  readonly replicas: readonly Stored<ReplicaRecord>[];
  readonly transaction: Transaction;
  readonly next: ControlRecord;
  readonly deleting: boolean;
}

/**
 * Brings every workload to what its spec says: creates and stops replicas as the rollout planner decides, replaces those
 * that failed, and removes what has ended. Level-triggered: a pass may run for any reason, as often as it likes.
 */
export class WorkloadReconciler {
  private readonly queue: WorkQueue<string>;
  private readonly unsubscribes: (() => void)[];

  constructor(private readonly deps: WorkloadReconcilerDeps) {
    this.queue = new WorkQueue<string>({
      clock: deps.clock,
      random: deps.random,
      handle: (uid) => this.reconcile(uid),
      onError: (uid, reason) => deps.log.error('reconcile failed', { workloadId: uid, ...errorFields(reason) }),
      backoff: { firstMs: 20, maxMs: 5_000, jitter: 0.2 },
      concurrency: 16,
    });
    const view = deps.state.view();
    for (const { value } of view.workloads()) this.queue.wake(value.uid);
    for (const { value } of view.replicas()) this.queue.wake(value.uid);
    this.unsubscribes = [
      deps.state.subscribe((changes) => this.wakeFor(changes)),
      deps.nodes.subscribe((nodeId) => this.wakeOn(nodeId)),
    ];
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    await this.queue.stop();
  }

  /** Level-triggered: call it for any reason, as often as you like, with only the id. */
  async reconcile(uid: string): Promise<WorkResult> {
    const { state } = this.deps;
    const view = state.view();
    const workload = view.workload(uid);
    const control = view.control(uid);
    const replicas = [...view.replicasOf(uid)].sort((a, b) => Number(a.value.sequence - b.value.sequence));
    if (workload === undefined || control === undefined) return this.dropEnded(replicas);
    const pass: Pass = {
      workload,
      control,
      replicas,
      transaction: state.transaction(),
      next: clone(ControlRecordSchema, control.value),
      deleting: workload.value.deletionRequestedAt !== undefined,
    };
    const ended = this.settleEnded(pass);
    if (ended > 0) return this.commit(pass, ended);
    return this.advance(pass);
  }

  private wakeFor(changes: readonly RecordChange[]): void {
    for (const { kind, id, before, after } of changes) {
      if (kind === 'workload' || kind === 'control') this.queue.wake(id);
      else if (kind === 'replica') this.queue.wake(((after ?? before) as ReplicaRecord).uid);
      else if (kind === 'node') this.wakeOn(id);
    }
  }

  private wakeOn(nodeId: string): void {
    for (const { value } of this.deps.state.view().replicasOn(nodeId)) this.queue.wake(value.uid);
  }

  /** The workload is gone: what its replicas left behind goes when their nodes have confirmed. */
  private async dropEnded(replicas: readonly Stored<ReplicaRecord>[]): Promise<WorkResult> {
    const ended = replicas.filter(({ value }) => !isTombstone(value) && !isLive(value)).slice(0, MAX_STEPS_PER_COMMIT);
    if (ended.length === 0) return { kind: 'done' };
    const transaction = this.deps.state.transaction();
    for (const replica of ended) transaction.deleteReplica(replica);
    return this.tryCommit(transaction);
  }

  /** Removes what was asked to stop and has, and retires what failed. @returns How many replicas that changes. */
  private settleEnded(pass: Pass): number {
    const { transaction, next, workload, deleting } = pass;
    const backoffs = new SlotBackoffs(next, this.deps.clock.wallTime());
    let changed = 0;
    for (const replica of pass.replicas) {
      if (changed >= MAX_STEPS_PER_COMMIT) break;
      const { value } = replica;
      if (isTombstone(value) || isLive(value)) continue;
      if (value.phase === Phase.STOPPED || deleting) {
        transaction.deleteReplica(replica);
      } else if (value.phase === Phase.FAILED && value.desiredRunning && !this.isFinal(pass, value)) {
        backoffs.failed(value.slot, this.deps.readiness.lastReadyForMs(value.id));
        transaction.updateReplica(replica, copyReplica(value, { desiredRunning: false, stopReason: value.reason }));
        transaction.event({
          severity: Severity.WARNING,
          category: Category.WORKLOAD,
          reason: 'ReplicaFailed',
          message: `replica ${value.id} failed: ${value.reason}`,
          namespace: workload.value.namespace,
          workload: workload.value.name,
          replicaId: value.id,
          nodeId: value.nodeId,
        });
      } else if (this.isForgettable(pass, value)) {
        transaction.deleteReplica(replica);
      } else {
        continue;
      }
      changed += 1;
    }
    return changed;
  }

  /** It has run to its end for good: it counts as one of the wanted replicas and is not replaced. */
  private isFinal({ workload }: Pass, replica: ReplicaRecord): boolean {
    if (replica.version !== workload.value.version) return false;
    const never = workload.value.spec?.restart?.policy === RestartMode.NEVER;
    return replica.phase === Phase.SUCCEEDED || (replica.phase === Phase.FAILED && never);
  }

  /** An ended replica is kept as long as somebody may want to know: the newest failed one of each slot, and final ones. */
  private isForgettable(pass: Pass, replica: ReplicaRecord): boolean {
    if (this.isFinal(pass, replica)) return !replica.desiredRunning;
    if (replica.phase === Phase.SUCCEEDED) return true;
    return pass.replicas.some(
      ({ value }) => value.slot === replica.slot && value.sequence > replica.sequence && value.phase === Phase.FAILED,
    );
  }

  private async advance(pass: Pass): Promise<WorkResult> {
    const { workload, deleting, next } = pass;
    const { state, nodes, readiness } = this.deps;
    const final = pass.replicas.filter(({ value }) => value.desiredRunning && this.isFinal(pass, value));
    const wanted = deleting ? 0 : Math.max(0, (workload.value.spec?.replicas ?? 1) - final.length);
    const values = pass.replicas.map(({ value }) => value);
    const { observed, nextFreshMs } = toRolloutInput({ view: state.view(), nodes, readiness }, workload.value, values, wanted);
    const decision = nextSteps(observed);
    if (deleting && decision.kind === 'converged') return this.removeWorkload(pass);
    const { taken, delayMs } =
      decision.kind === 'steps' ? this.applySteps(pass, decision.steps) : { taken: 0, delayMs: undefined };
    this.noteProgress(pass, decision);
    this.pruneVersions(pass);
    if (taken > 0 || !sameControl(pass.control.value, next) || pass.transaction.size > 0) return this.commit(pass, taken);
    const wakeMs = Math.min(nextFreshMs ?? Number.POSITIVE_INFINITY, delayMs ?? Number.POSITIVE_INFINITY);
    return Number.isFinite(wakeMs) ? { kind: 'after', delayMs: wakeMs } : { kind: 'done' };
  }

  private applySteps(
    pass: Pass,
    steps: readonly RolloutStep[],
  ): { readonly taken: number; readonly delayMs: number | undefined } {
    const { next } = pass;
    const byId = new Map(pass.replicas.map((replica) => [replica.value.id, replica]));
    const slots = new FreeSlots(pass.replicas.map(({ value }) => value).filter((value) => value.desiredRunning));
    const backoffs = new SlotBackoffs(next, this.deps.clock.wallTime());
    let taken = 0;
    let delayMs: number | undefined;
    for (const step of steps) {
      if (taken >= MAX_STEPS_PER_COMMIT) break;
      if (step.kind === 'createReplica') {
        const slot = slots.take();
        const waitMs = backoffs.waitMs(slot);
        if (waitMs > 0) {
          delayMs = Math.min(delayMs ?? waitMs, waitMs);
          continue;
        }
        this.createReplica(pass, step.version, slot);
      } else {
        const replica = byId.get(step.replicaId);
        if (replica === undefined) continue;
        this.stopReplica(pass, replica);
      }
      taken += 1;
    }
    return { taken, delayMs };
  }

  private createReplica({ transaction, next, workload }: Pass, version: number, slot: number): void {
    const sequence = next.nextSequence;
    next.nextSequence += 1n;
    const record = create(ReplicaRecordSchema, {
      id: replicaIdOf(toWorkloadId(workload.value.uid), Number(sequence)),
      uid: workload.value.uid,
      sequence,
      slot,
      version,
      desiredRunning: true,
      phase: Phase.PENDING,
      reason: 'waits for a node',
      createdAt: timestampFromMs(this.deps.clock.wallTime()),
    });
    transaction.createReplica(record);
  }

  private stopReplica({ transaction, deleting, workload }: Pass, replica: Stored<ReplicaRecord>): void {
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
    transaction.updateReplica(
      replica,
      copyReplica(value, { desiredRunning: false, stopReason, orderRevision: this.deps.state.view().revision }),
    );
  }

  /** Keeps the rollout's phase and the generation this pass has acted upon. */
  private noteProgress({ next, workload, transaction, deleting }: Pass, decision: RolloutDecision): void {
    next.observedGeneration = workload.value.generation;
    if (deleting) return;
    const about = { category: Category.ROLLOUT, namespace: workload.value.namespace, workload: workload.value.name };
    if (next.activeVersion !== workload.value.version && next.rolloutPhase !== RolloutPhase.IN_PROGRESS) {
      next.rolloutPhase = RolloutPhase.IN_PROGRESS;
      const message =
        next.activeVersion === 0
          ? 'version 1 is being started'
          : `version ${workload.value.version} replaces version ${next.activeVersion}`;
      transaction.event({ ...about, severity: Severity.INFO, reason: 'RolloutStarted', message });
    }
    next.rolloutReason = decision.kind === 'waiting' ? decision.reason.text : '';
    if (decision.kind === 'converged' && next.activeVersion !== workload.value.version) {
      next.activeVersion = workload.value.version;
      next.rolloutPhase = RolloutPhase.COMPLETED;
      transaction.event({
        ...about,
        severity: Severity.INFO,
        reason: 'RolloutCompleted',
        message: `version ${workload.value.version} runs on every replica`,
      });
    }
  }

  /** Keeps the newest versions and those that replicas still run. */
  private pruneVersions({ workload, replicas, transaction }: Pass): void {
    const { uid } = workload.value;
    const versions = this.deps.state.view().versions(uid);
    const inUse = new Set(replicas.map(({ value }) => value.version));
    for (const { version } of versions.slice(0, Math.max(0, versions.length - MAX_VERSIONS))) {
      if (!inUse.has(version)) transaction.delete('version', versionKeyId(uid, version));
    }
  }

  private async removeWorkload({ workload, control, transaction }: Pass): Promise<WorkResult> {
    const { uid, namespace, name } = workload.value;
    transaction.require('workload', uid, workload).delete('workload', uid);
    transaction.require('control', uid, control).delete('control', uid);
    transaction.delete('name', nameKeyId(namespace, name));
    for (const { version } of this.deps.state.view().versions(uid)) transaction.delete('version', versionKeyId(uid, version));
    transaction.event({
      severity: Severity.INFO,
      category: Category.WORKLOAD,
      reason: 'WorkloadDeleted',
      message: `workload ${namespace}/${name} is gone: every reachable node has confirmed`,
      namespace,
      workload: name,
    });
    return this.tryCommit(transaction);
  }

  /** Whatever creates or stops replicas compares and rewrites the control record: so all share one account. */
  private async commit(pass: Pass, steps: number): Promise<WorkResult> {
    const { uid } = pass.workload.value;
    pass.transaction.require('control', uid, pass.control).put('control', uid, pass.next);
    pass.transaction.require('workload', uid, pass.workload);
    const result = await this.tryCommit(pass.transaction);
    if (result.kind === 'again')
      this.deps.log.info('workload advanced', { workloadId: uid, steps, revision: String(this.deps.state.view().revision) });
    return result;
  }

  private async tryCommit(transaction: Transaction): Promise<WorkResult> {
    try {
      await this.deps.state.commit(transaction);
      return { kind: 'again' };
    } catch (reason) {
      if (errorKindOf(reason) === 'conflict') return { kind: 'again' };
      throw reason;
    }
  }
}

/** Lost with its node: kept until the node is back and has confirmed the stop. */
function isTombstone({ lost, phase }: ReplicaRecord): boolean {
  return lost && phase !== Phase.STOPPED;
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

function sameControl(a: ControlRecord, b: ControlRecord): boolean {
  return (
    a.observedGeneration === b.observedGeneration &&
    a.activeVersion === b.activeVersion &&
    a.rolloutPhase === b.rolloutPhase &&
    a.rolloutReason === b.rolloutReason &&
    a.nextSequence === b.nextSequence
  );
}
