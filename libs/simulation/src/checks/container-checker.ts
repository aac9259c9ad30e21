import { fromBinary } from '@bufbuild/protobuf';
import { OrderSchema } from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import {
  fromContainerLabels,
  isEnded,
  toReplicaTarget,
  type ContainerOwner,
  type StoredReplica,
} from '@cloudless/agent-core';
import { backoffDelayMs, type ContainerId } from '@cloudless/base';
import { isLive } from '@cloudless/cluster-state';
import type { ContainerEvent, ContainerRequest } from '@cloudless/runtime';
import type { CheckedView } from '../parts/durable-records.js';
import type { SimNode } from '../parts/sim-node.js';
import { findReplicaChanges } from './commit-changes.js';
import type { Commit } from './commit-checkers.js';
import { ceilingOf, factsOf } from './rollout-facts.js';

export interface ContainerCheckerDeps {
  readonly records: CheckedView;
  readonly now: () => number;
  /** Schedules a later check. */
  readonly schedule: (delayMs: number, action: () => void) => void;
  readonly reportViolation: (text: string) => void;
}

/** Returns true when the disk of an agent has a stop order or a mark of the replica. */
function hasStop(stored: StoredReplica | undefined): boolean {
  return stored?.end !== undefined || stored?.stopped === true;
}

/** A container that runs on a simulated machine. */
export interface RunningContainer {
  readonly node: SimNode;
  readonly containerId: ContainerId;
  readonly owner: ContainerOwner;
}

/** Exits and starts of a replica's containers on its machine. */
interface ReplicaHistory {
  exits: number;
  failedStarts: number;
  lastStartAt: number;
}

/**
 * Tolerance between the end of a back-off and the container start, milliseconds. Covers writes, the
 * runtime, and the scheduling in the agent.
 */
const RESTART_SLACK_MS = 1_500;

/**
 * Compares the containers that run on the machines with the disks of the coordinator and of the
 * agents.
 */
export class ContainerChecker {
  private readonly running = new Map<ContainerId, RunningContainer>();
  private readonly histories = new Map<string, ReplicaHistory>();
  /** Replicas that each agent process has read from or saved to its disk, by node and replica. */
  private readonly storedReplicas = new Map<string, StoredReplica>();
  /** Orphans that agents were ordered to stop with a full disk, by node and replica. */
  private readonly unstoredStops = new Set<string>();
  /** Ceiling of each workload when its newest replica was created. */
  private readonly ceilings = new Map<string, number>();
  private readonly removedNodes = new Set<string>();
  /**
   * Replicas that were declared lost with their nodes; their containers are stopped when the node
   * returns.
   */
  private readonly declaredLost = new Set<string>();

  constructor(private readonly deps: ContainerCheckerDeps) {}

  /** Yields all running containers on all machines. */
  runningContainers(): Iterable<RunningContainer> {
    return this.running.values();
  }

  /** Called when a new agent process reads the disk of its predecessor. */
  onAgentStart(node: SimNode): void {
    for (const key of this.storedReplicas.keys())
      if (key.startsWith(`${node.id}/`)) this.storedReplicas.delete(key);
    for (const stored of node.store.replicas.values())
      this.storedReplicas.set(`${node.id}/${stored.replicaId}`, stored);
  }

  /**
   * Called when the agent has saved a replica on its disk.
   * @param stored - Undefined when the agent has removed the replica.
   */
  onSave(node: SimNode, replicaId: string, stored: StoredReplica | undefined): void {
    const key = `${node.id}/${replicaId}`;
    const before = this.storedReplicas.get(key);
    if (stored === undefined) {
      this.storedReplicas.delete(key);
      return;
    }
    this.storedReplicas.set(key, stored);
    if (!hasStop(before) && hasStop(stored)) this.checkStopOrder(node, replicaId);
    if (before === undefined) return;
    if (stored.heldRevision < before.heldRevision)
      this.deps.reportViolation(
        `7: ${node.id} went back from order ${before.heldRevision} of ${replicaId} to ${stored.heldRevision}`,
      );
    if (hasStop(before) && !hasStop(stored))
      this.deps.reportViolation(`7: ${node.id} lost the stop order of ${replicaId}`);
    if (isEnded(before.progress.phase) && !isEnded(stored.progress.phase))
      this.deps.reportViolation(`7: ${replicaId} on ${node.id} has ended and runs again`);
  }

  /** Called when the agent has marked a replica as stopped, also one that is not on its disk. */
  onStopMarked(node: SimNode, replicaId: string): void {
    const stored = node.store.replicas.get(replicaId);
    if (stored !== undefined) return this.onSave(node, replicaId, stored);
    this.checkStopOrder(node, replicaId);
    this.unstoredStops.add(`${node.id}/${replicaId}`);
  }

  /** Called when the agent requests a container start. */
  onContainerStart(node: SimNode, request: ContainerRequest): void {
    const owner = fromContainerLabels(request.labels);
    if (owner === undefined)
      return this.deps.reportViolation(`${node.id} starts a container without an owner`);
    const { replicaId } = owner;
    const held = this.storedReplicas.get(`${node.id}/${replicaId}`);
    if (held?.start === undefined)
      return this.deps.reportViolation(
        `7: ${node.id} starts a container of ${replicaId} without an order on its disk`,
      );
    if (hasStop(held))
      this.deps.reportViolation(
        `7: ${node.id} starts a container of ${replicaId}, but its disk has a stop order`,
      );
    const history = this.historyOf(node, replicaId);
    const { failedStarts = 0 } = owner;
    const restarts = owner.restarts - failedStarts;
    if (restarts > history.exits)
      this.deps.reportViolation(
        `15: ${replicaId} on ${node.id} reports ${restarts} restarts, but ${history.exits} of its containers have ended`,
      );
    if (failedStarts > history.failedStarts)
      this.deps.reportViolation(
        `15: ${replicaId} on ${node.id} reports ${failedStarts} failed starts, but the machine failed ${history.failedStarts} of its starts`,
      );
  }

  /** Called when the machine did not carry out a start. */
  onStartFailure(node: SimNode, replicaId: string): void {
    this.historyOf(node, replicaId).failedStarts += 1;
  }

  /**
   * Invariant 15: an agent stops only containers that it was ordered to stop, or that another
   * container has replaced.
   */
  onContainerStop(node: SimNode, containerId: ContainerId): void {
    const container = this.running.get(containerId);
    if (container === undefined) return;
    const { replicaId } = container.owner;
    const key = `${node.id}/${replicaId}`;
    const held = this.storedReplicas.get(key);
    const hasAnother = [...this.running.values()].some(
      (other) => other.owner.replicaId === replicaId && other.containerId !== containerId,
    );
    if (
      !hasStop(held) &&
      !(held === undefined && this.unstoredStops.has(key)) &&
      !hasAnother &&
      !(held !== undefined && isEnded(held.progress.phase))
    )
      this.deps.reportViolation(
        `15: ${node.id} stops a container of ${replicaId} without an order`,
      );
  }

  /** Called when a container starts or exits on the machine. */
  onContainerEvent(node: SimNode, { kind, status }: ContainerEvent): void {
    const owner = fromContainerLabels(status.labels);
    if (owner === undefined) return;
    const { containerId } = status;
    if (kind === 'exited') {
      this.running.delete(containerId);
      this.historyOf(node, owner.replicaId).exits += 1;
      if (status.reason !== 'lost with the machine')
        this.expectRestart(node, owner, status.exitCode ?? -1);
      return;
    }
    this.historyOf(node, owner.replicaId).lastStartAt = this.deps.now();
    for (const other of this.running.values()) {
      if (other.owner.replicaId === owner.replicaId)
        this.deps.reportViolation(
          `6: ${owner.replicaId} runs twice: on ${other.node.id} and on ${node.id}`,
        );
    }
    this.running.set(containerId, { node, containerId, owner });
    this.checkExclusive(owner);
    this.checkRecord(node, owner.replicaId);
    this.checkCeiling(owner);
  }

  /** Compares a commit with the running containers. */
  checkCommit({ changes, view, nodeFacts }: Commit): void {
    for (const { kind, id, after } of changes)
      if (kind === 'node' && after === undefined) this.removedNodes.add(id);
    for (const { before, after } of findReplicaChanges(changes)) {
      if (after?.lost === true) this.declaredLost.add(after.id);
      else if (before?.lost === true && after !== undefined) this.declaredLost.delete(after.id);
      if (before === undefined && after !== undefined) {
        const workload = view.workload(after.uid)?.value;
        if (workload !== undefined)
          this.ceilings.set(after.uid, ceilingOf(view, factsOf(view, workload), nodeFacts));
      }
      if (
        before !== undefined &&
        isLive(before) &&
        !before.lost &&
        !(after !== undefined && isLive(after))
      )
        this.checkEndedReplica(before, after);
    }
  }

  /**
   * Invariant 6: a replica that the coordinator no longer counts does not run, unless it was
   * declared lost with its node.
   */
  private checkEndedReplica(before: ReplicaRecord, after: ReplicaRecord | undefined): void {
    if (after?.lost === true || this.removedNodes.has(before.nodeId)) return;
    for (const { owner, node } of this.running.values()) {
      if (owner.replicaId === before.id && this.deps.records.node(before.nodeId) !== undefined)
        this.deps.reportViolation(
          `6: ${before.id} still runs on ${node.id}, but its record has ended`,
        );
    }
  }

  /**
   * Invariant 15: no stop order is sent for a replica whose record says that it runs on that node.
   */
  private checkStopOrder(node: SimNode, replicaId: string): void {
    const record = this.deps.records.replica(replicaId)?.value;
    if (record === undefined || record.nodeId !== node.id || this.removedNodes.has(node.id)) return;
    if (record.desiredRunning && !record.lost && isLive(record))
      this.deps.reportViolation(
        `15: ${node.id} was ordered to stop ${replicaId}, but its record wants it to run there`,
      );
  }

  /**
   * Invariant 6: in EXCLUSIVE mode at most one container runs for each slot, also of lost replicas.
   */
  private checkExclusive({ workloadUid, replicaId, workload }: ContainerOwner): void {
    const { records, reportViolation } = this.deps;
    const slot = records.replica(replicaId)?.value.slot;
    for (const other of this.running.values()) {
      const record = records.replica(other.owner.replicaId)?.value;
      if (other.owner.workloadUid !== workloadUid || other.owner.replicaId === replicaId) continue;
      if (record?.stopAfter !== undefined && record.lost && record.slot === slot)
        reportViolation(
          `6: ${replicaId} of ${workload} starts, but ${record.id} still runs on ${other.node.id} and is EXCLUSIVE`,
        );
    }
  }

  /**
   * Invariant 6: a container starts only when its replica's record is live and names that node.
   */
  private checkRecord(node: SimNode, replicaId: string): void {
    const record = this.deps.records.replica(replicaId)?.value;
    if (this.declaredLost.has(replicaId) || this.removedNodes.has(node.id)) return;
    if (record === undefined || !isLive(record) || record.nodeId !== node.id)
      this.deps.reportViolation(`6: ${replicaId} starts on ${node.id}, but its record has ended`);
  }

  /**
   * Invariant 6: no more replicas run than the ceiling allowed when the newest was created, without
   * lost replicas.
   */
  private checkCeiling({ workloadUid, replicaId, workload }: ContainerOwner): void {
    const { records, reportViolation } = this.deps;
    const ceiling = this.ceilings.get(workloadUid);
    const isCounted = (id: string): boolean => records.replica(id)?.value.lost === false;
    if (ceiling === undefined || !isCounted(replicaId)) return;
    const counted = [...this.running.values()].filter(
      ({ owner }) => owner.workloadUid === workloadUid && isCounted(owner.replicaId),
    ).length;
    if (counted > ceiling)
      reportViolation(`6: ${counted} containers of ${workload} run, but the ceiling is ${ceiling}`);
  }

  /** Invariant 14: the agent restarts an ended container, with or without a coordinator. */
  private expectRestart(node: SimNode, { replicaId }: ContainerOwner, exitCode: number): void {
    const held = this.storedReplicas.get(`${node.id}/${replicaId}`);
    const { agent } = node;
    if (
      held?.start === undefined ||
      hasStop(held) ||
      agent === undefined ||
      node.quietSince !== undefined
    )
      return;
    const target = toReplicaTarget(fromBinary(OrderSchema, held.start));
    // An EXCLUSIVE container also ends because the node has lost contact, and then waits for it.
    if (target.stopAfterMs !== undefined) return;
    const failures = agent.replicas.find(replicaId)?.current.failures ?? 0;
    const hasEnded =
      target.restart === 'never' ||
      failures >= target.maxRetries ||
      (target.restart === 'onFailure' && exitCode === 0);
    if (hasEnded) return;
    const endedAt = this.deps.now();
    const history = this.historyOf(node, replicaId);
    const { failedStarts } = history;
    const waitMs =
      backoffDelayMs(RESTART_BACKOFF, failures + 1) / node.options.drift.rate +
      RESTART_SLACK_MS +
      3 * node.storeMs[1];
    this.deps.schedule(waitMs, () => {
      const wasActive =
        node.quietSince === undefined && node.activeSince <= endedAt && !node.isDestroyed;
      const stored = this.storedReplicas.get(`${node.id}/${replicaId}`);
      const isWanted = stored !== undefined && !hasStop(stored);
      if (
        !wasActive ||
        !isWanted ||
        history.failedStarts > failedStarts ||
        history.lastStartAt >= endedAt
      )
        return;
      this.deps.reportViolation(
        `14: ${replicaId} on ${node.id} ended at ${endedAt.toFixed(1)} ms and was not restarted`,
      );
    });
  }

  private historyOf(node: SimNode, replicaId: string): ReplicaHistory {
    const key = `${node.id}/${replicaId}`;
    const known = this.histories.get(key);
    if (known !== undefined) return known;
    const created: ReplicaHistory = { exits: 0, failedStarts: 0, lastStartAt: -1 };
    this.histories.set(key, created);
    return created;
  }
}

/** Back-off of the agents' restarts in place. */
const RESTART_BACKOFF = { firstMs: 100, maxMs: 5 * 60_000 };
