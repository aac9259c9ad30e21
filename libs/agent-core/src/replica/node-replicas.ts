import { create, fromBinary } from '@bufbuild/protobuf';
import {
  CloudlessError,
  definedFields,
  errorFields,
  errorKindOf,
  type StopSignal,
} from '@cloudless/base';
import {
  OrderRefusedSchema,
  OrderSchema,
  ReplicaReportSchema,
  ReplicaStatus_Phase,
  type Order,
  type ReplicaReport,
} from '@cloudless/api';
import {
  listAvailable,
  type AvailableContainers,
  type ContainerEvent,
  type ContainerKind,
  type ContainerSignal,
  type ContainerStatus,
} from '@cloudless/runtime';
import type { StoredReplica } from '../store/agent-store.js';
import type { IdentityKeeper } from '../store/identity-keeper.js';
import { fromContainerLabels, type ContainerOwner } from '../container/container-labels.js';
import { readLastLines } from '../container/last-lines.js';
import { StartQueue } from '../container/start-queue.js';
import { mayBeMissing, toReplicaTarget } from './replica-target.js';
import type { ReplicaListener } from './replica-listener.js';
import type { ReplicaRunnerDeps } from './replica-runner-deps.js';
import { ReplicaRunner } from './replica-runner.js';
import { withStoredEnd } from './order-storage.js';
import { isEnded } from './replica-phase.js';
import { createReplicaState } from './replica-state.js';
import {
  findUnseenFailure,
  restoreOrphan,
  restoreReplica,
  restoreUnlisted,
  type RestoreInput,
} from './restore-replica.js';
import { resolveStopDelays } from './stop-delays.js';
import { toStoredStop } from './stored-orders.js';
import { toReplicaReport } from './to-replica-report.js';

export type NodeReplicasOptions = Omit<
  ReplicaRunnerDeps,
  'onChanged' | 'onForgotten' | 'clusterId' | 'starts'
> & {
  readonly identity: IdentityKeeper;
  /** See {@link AgentOptions.startConcurrency}. */
  readonly startConcurrency?: number;
};

/** Four concurrent starts use all CPU of a small machine; more would only delay each of them. */
const DEFAULT_START_CONCURRENCY = 4;

/**
 * Format of replica ids as coordinators create them. An id that does not match could not be a
 * file name or a label.
 */
const REPLICA_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** All replicas of this node. Only explicit orders create or end a replica. */
export class NodeReplicas {
  private readonly runners = new Map<string, ReplicaRunner>();
  private readonly listeners = new Set<ReplicaListener>();
  private readonly starts: StartQueue;
  private readonly deps: ReplicaRunnerDeps;

  constructor(private readonly options: NodeReplicasOptions) {
    this.starts = new StartQueue(
      options.startConcurrency ?? DEFAULT_START_CONCURRENCY,
      options.clock,
    );
    this.deps = {
      ...options,
      starts: this.starts,
      clusterId: () => options.identity.clusterId,
      onChanged: (replicaId) => this.notify((listener) => listener.onChanged(replicaId)),
      onForgotten: (replicaId) => this.removeForgotten(replicaId),
    };
  }

  /**
   * Restores the replicas from stored orders and the containers of the runtime. The replicas of a
   * kind that is not listed stay unlisted until {@link NodeReplicas.restoreUnlisted}.
   * @param signal - Ends the read of the last lines of failed containers early.
   * @throws kind `internal` when a stored order cannot be decoded.
   */
  async restore(
    stored: readonly StoredReplica[],
    { containers, missing }: AvailableContainers,
    signal: StopSignal,
  ): Promise<void> {
    const containersByReplica = this.groupByReplica(containers);
    const lastLines = await this.readLinesOfFailed(stored, containersByReplica, signal);
    for (const replica of stored) {
      const input = this.toRestoreInput(replica, containersByReplica, lastLines);
      const isUnlisted =
        input.containers.length === 0 && mayBeMissing(input.target?.usesImage, missing);
      const { state, effects } = isUnlisted
        ? { state: restoreUnlisted(input), effects: [] }
        : restoreReplica(input);
      containersByReplica.delete(replica.replicaId);
      const runner = new ReplicaRunner(this.deps, state, replica);
      this.runners.set(replica.replicaId, runner);
      runner.resume(effects);
    }
    this.adoptOrphans([...containersByReplica.values()].flat());
  }

  /**
   * Restores the unlisted replicas of the kinds that are listed now, and adopts orphans.
   * @param signal - Ends the read of the last lines of failed containers early.
   */
  async restoreUnlisted(
    { containers, missing }: AvailableContainers,
    signal: StopSignal,
  ): Promise<void> {
    const containersByReplica = this.groupByReplica(containers);
    const findUnlisted = (): readonly ReplicaRunner[] =>
      this.listRunners().filter(
        ({ current: { activity, replicaId, target } }) =>
          activity.kind === 'unlisted' &&
          (containersByReplica.has(replicaId) || !mayBeMissing(target?.usesImage, missing)),
      );
    const stored = findUnlisted().map((runner) => runner.stored);
    const lastLines = await this.readLinesOfFailed(stored, containersByReplica, signal);
    // An order may have been stored while the last lines were read.
    for (const runner of findUnlisted())
      runner.restore(
        restoreReplica(this.toRestoreInput(runner.stored, containersByReplica, lastLines)),
      );
    const orphans = containers.filter((status) => {
      const owner = this.findOwner(status);
      return owner !== undefined && !this.runners.has(owner.replicaId);
    });
    this.adoptOrphans(orphans);
    for (const status of orphans) {
      const replicaId = this.findOwner(status)?.replicaId ?? '';
      this.notify((listener) => listener.onChanged(replicaId));
    }
  }

  /** Adopts containers of this node that have no stored replica (orphans). */
  adoptOrphans(containers: readonly ContainerStatus[]): void {
    for (const [replicaId, statuses] of this.groupByReplica(containers)) {
      if (this.runners.has(replicaId)) continue;
      const { state, effects } = restoreOrphan(replicaId, statuses);
      const runner = new ReplicaRunner(this.deps, state, { bootId: this.options.bootId });
      this.runners.set(replicaId, runner);
      runner.resume(effects);
      this.options.log.warn('orphan container adopted', { replicaId });
    }
  }

  /**
   * Accepts or refuses an order. Resolves when the order has been stored or refused, or could not
   * be stored. Handles orders for the same replica one after the other, in the sequence of the
   * calls.
   */
  async handleOrder(order: Order): Promise<void> {
    const { identity, log } = this.options;
    const existing = this.runners.get(order.replicaId);
    if (order.epoch < identity.current.highestEpoch)
      return this.refuse(order, 'the agent has received a newer epoch');
    if (!REPLICA_ID.test(order.replicaId))
      return this.refuse(order, 'replica_id: must have letters, digits, ".", "_" or "-" only');
    if (existing === undefined && order.order.case === 'forget')
      return this.acknowledgeForget(order);
    const runner =
      existing ??
      new ReplicaRunner(this.deps, createReplicaState(order.replicaId, order.workloadUid), {
        bootId: this.options.bootId,
      });
    this.runners.set(order.replicaId, runner);
    const outcome = await runner.handleOrder(order, () => identity.raiseEpoch(order.epoch));
    if (isBlank(runner)) this.runners.delete(order.replicaId); // the first order was not accepted
    switch (outcome.kind) {
      case 'accepted':
        if (!runner.isClosed) this.runners.set(order.replicaId, runner);
        log.info('order accepted', {
          replicaId: order.replicaId,
          revision: order.orderRevision,
          epoch: order.epoch,
          order: order.order.case,
        });
        return;
      case 'repeated':
        return this.notify((listener) => listener.onChanged(order.replicaId));
      case 'refused':
        return this.refuse(order, outcome.reason);
      case 'failed':
      case 'unstored':
        return; // the runner has logged the failure; the coordinator repeats the order
      case 'closed':
        // The replica was forgotten meanwhile: the order is handled as the order for a new replica.
        return this.runners.get(order.replicaId) === runner ? undefined : this.handleOrder(order);
    }
  }

  /** Call it when a coordinator has accepted a new session, before the first order of the session. */
  noteSessionStarted(): void {
    for (const runner of this.runners.values()) runner.noteSessionStarted();
  }

  /** Ends the wait of stopping replicas for network proxies. Ignores other replicas. */
  noteEndpointsGone(replicaIds: readonly string[]): void {
    for (const replicaId of replicaIds) void this.runners.get(replicaId)?.noteEndpointsGone();
  }

  /**
   * Sends a signal to the main process of a replica.
   * @returns False when no process of the replica runs.
   * @throws kind `unavailable` while the process is being started; the errors of
   *   `ContainerRuntime.signal`.
   */
  async sendSignal(replicaId: string, signal: ContainerSignal): Promise<boolean> {
    const activity = this.runners.get(replicaId)?.current.activity;
    if (activity?.kind === 'starting' || activity?.kind === 'unlisted')
      throw new CloudlessError('unavailable', 'the process is being started');
    if (activity?.kind !== 'running') return false;
    try {
      await this.options.runtime.signal(activity.containerId, signal);
      return true;
    } catch (reason) {
      // The process has ended meanwhile.
      if (['precondition', 'notFound'].includes(errorKindOf(reason))) return false;
      throw reason;
    }
  }

  /** Reports why the files of a running replica are outdated; empty when they no longer are. */
  reportFiles(replicaId: string, reason: string): void {
    this.runners.get(replicaId)?.apply({ kind: 'filesReported', reason });
  }

  /** Handles an event of the runtime. */
  observe({ kind, status }: ContainerEvent): void {
    const owner = this.findOwner(status);
    if (owner === undefined) return;
    const runner = this.runners.get(owner.replicaId);
    if (runner === undefined) {
      if (status.phase === 'running') this.adoptLateStart(owner.replicaId, status);
      return;
    }
    if (kind === 'exited') runner.onExited(status);
    else runner.onRunning(status);
  }

  /**
   * Adopts a container whose start completed after its replica was forgotten. The coordinator
   * decides what happens to the container.
   */
  private adoptLateStart(replicaId: string, status: ContainerStatus): void {
    this.adoptOrphans([status]);
    this.notify((listener) => listener.onChanged(replicaId));
  }

  /**
   * Returns the ids of the containers that should be running now, by replica id. Callers read these
   * ids before they list the runtime's containers, so that a container started in between does not
   * count as missing.
   */
  listExpectedContainers(): ReadonlyMap<string, string> {
    const running = [...this.runners].flatMap(([replicaId, { current }]) =>
      current.activity.kind === 'running' || current.activity.kind === 'leaving'
        ? [[replicaId, current.activity.containerId] as const]
        : [],
    );
    return new Map(running);
  }

  /**
   * Applies a list of the runtime's containers after events may have been missed. A container that
   * was expected and is not listed counts as lost, unless its kind is missing in the list.
   */
  applyContainerList(
    expected: ReadonlyMap<string, string>,
    { containers, missing }: AvailableContainers,
  ): void {
    const listedIds = new Set(containers.map(({ containerId }) => containerId as string));
    for (const status of containers)
      this.observe({ kind: status.phase === 'exited' ? 'exited' : 'started', status });
    for (const [replicaId, containerId] of expected) {
      if (listedIds.has(containerId)) continue;
      const runner = this.runners.get(replicaId);
      if (mayBeMissing(runner?.current.target?.usesImage, missing)) continue;
      const activity = runner?.current.activity;
      if (
        activity !== undefined &&
        'containerId' in activity &&
        activity.containerId === containerId &&
        activity.containerId !== undefined
      ) {
        runner?.onLost(activity.containerId);
      }
    }
  }

  /**
   * Renews the leases of the containers of exclusive replicas after a confirmed contact with a
   * coordinator.
   */
  async renewLeases(): Promise<void> {
    const leases = new Map(
      [...this.runners.values()].flatMap((runner) => toList(runner.lease.createRenewal())),
    );
    if (leases.size === 0) return;
    try {
      await this.options.runtime.renew(leases);
    } catch (reason) {
      this.options.log.warn(
        'not all leases of exclusive replicas were renewed',
        errorFields(reason),
      );
    }
  }

  /**
   * Pauses the starts of a runtime that does not answer, so that they delay no start of the other
   * runtime, or ends the pause.
   */
  pauseStarts(kind: ContainerKind, isPaused: boolean): void {
    if (isPaused) this.starts.pause(kind);
    else this.starts.resume(kind);
  }

  /** Number of replicas in the start queue. */
  get waitingStartCount(): number {
    return this.starts.size;
  }

  /** Returns the runner of a replica; undefined when the node has no such replica. */
  find(replicaId: string): ReplicaRunner | undefined {
    return this.runners.get(replicaId);
  }

  listRunners(): readonly ReplicaRunner[] {
    return [...this.runners.values()];
  }

  /**
   * Returns the current report of a replica; undefined when the node has no such replica or its
   * first order has not been stored.
   */
  findReport(replicaId: string): ReplicaReport | undefined {
    const runner = this.runners.get(replicaId);
    return runner === undefined || isBlank(runner) ? undefined : toReplicaReport(runner.current);
  }

  /**
   * Reports of all replicas, including replicas whose first order is still being stored: the
   * coordinator considers a replica that is missing in an inventory gone, but that replica is about
   * to run.
   */
  listReports(): readonly ReplicaReport[] {
    return [...this.runners.values()].map(({ current }) => toReplicaReport(current));
  }

  /**
   * Calls `listener` for every change from now on.
   * @returns A function that ends the subscription.
   */
  subscribe(listener: ReplicaListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Returns the owner of a container; undefined when the container does not belong to this node and
   * cluster.
   */
  findOwner({ labels }: Pick<ContainerStatus, 'labels'>): ContainerOwner | undefined {
    const owner = fromContainerLabels(labels);
    return owner?.clusterId === this.options.identity.clusterId &&
      owner.nodeId === this.options.nodeId
      ? owner
      : undefined;
  }

  /** Ends the control of all replicas. Containers keep running. */
  async close(): Promise<void> {
    await Promise.all([...this.runners.values()].map((runner) => runner.close()));
  }

  /**
   * Ends the control of all replicas, then stops every container of this node, each with the grace
   * period of its own spec. Used when the whole cluster is removed.
   * @param silentKinds - Kinds whose runtime does not answer: their containers are not stopped.
   * @returns False when a stop has failed, or a runtime did not list its containers.
   */
  async stopAll(silentKinds: readonly ContainerKind[] = []): Promise<boolean> {
    await this.close();
    const { runtime, log } = this.options;
    const isSilent = ({ current: { target } }: ReplicaRunner): boolean =>
      target !== undefined && mayBeMissing(target.usesImage, silentKinds);
    // A list would only wait for the silent runtimes.
    if (silentKinds.length > 0 && this.listRunners().every(isSilent)) return true;
    let hasFailed = false;
    const stop = async (status: ContainerStatus): Promise<void> => {
      const { containerId, phase, runtimeId } = status;
      const owner = this.findOwner(status);
      if (phase !== 'running' || owner === undefined) return;
      const target = this.runners.get(owner.replicaId)?.current.target;
      if (mayBeMissing(target?.usesImage ?? runtimeId !== undefined, silentKinds)) return;
      try {
        await runtime.stop(containerId, target?.graceMs ?? 0);
      } catch (reason) {
        hasFailed = true;
        log.warn('container not stopped', { containerId, ...errorFields(reason) });
      }
    };
    try {
      const { containers, missing } = await listAvailable(runtime);
      if (missing.some((kind) => !silentKinds.includes(kind))) hasFailed = true;
      await Promise.all(containers.map(stop));
    } catch (reason) {
      if (silentKinds.length === 0 && errorKindOf(reason) !== 'unavailable') throw reason;
      hasFailed = true;
      log.warn('runtime not reached', errorFields(reason));
    }
    return !hasFailed;
  }

  private toRestoreInput(
    stored: StoredReplica,
    containersByReplica: ReadonlyMap<string, readonly ContainerStatus[]>,
    lastLines: ReadonlyMap<string, readonly string[]>,
  ): RestoreInput {
    const target =
      stored.start === undefined
        ? undefined
        : toReplicaTarget(fromBinary(OrderSchema, stored.start));
    const end = stored.end === undefined ? undefined : toStoredStop(stored.end, target);
    const markedStop = stored.stopped === true ? resolveStopDelays(target, {}) : undefined;
    return {
      stored,
      ...definedFields({ target, stop: end?.stop ?? markedStop }),
      forget: end?.forget ?? false,
      containers: containersByReplica.get(stored.replicaId) ?? [],
      bootId: this.options.bootId,
      lastLines: lastLines.get(stored.replicaId) ?? [],
    };
  }

  private groupByReplica(containers: readonly ContainerStatus[]): Map<string, ContainerStatus[]> {
    const containersByReplica = new Map<string, ContainerStatus[]>();
    for (const status of containers) {
      const owner = this.findOwner(status);
      if (owner !== undefined)
        containersByReplica.set(owner.replicaId, [
          ...(containersByReplica.get(owner.replicaId) ?? []),
          status,
        ]);
    }
    return containersByReplica;
  }

  /** Reads the last lines of containers that failed while no agent was running, by replica id. */
  private async readLinesOfFailed(
    stored: readonly StoredReplica[],
    containersByReplica: ReadonlyMap<string, readonly ContainerStatus[]>,
    signal: StopSignal,
  ): Promise<ReadonlyMap<string, readonly string[]>> {
    const reads = stored.map(async (replica) => {
      const containerId = findUnseenFailure({
        stored: replica,
        containers: containersByReplica.get(replica.replicaId) ?? [],
      });
      const lines =
        containerId === undefined ? [] : await readLastLines(containerId, this.options, signal);
      return [replica.replicaId, lines] as const;
    });
    return new Map(await Promise.all(reads));
  }

  private refuse(order: Order, reason: string): void {
    const heldRevision = this.runners.get(order.replicaId)?.current.heldRevision ?? 0n;
    const heldEpoch = this.options.identity.current.highestEpoch;
    this.options.log.warn('order refused', {
      replicaId: order.replicaId,
      revision: order.orderRevision,
      epoch: order.epoch,
      heldRevision,
      heldEpoch,
      reason,
    });
    const refusal = create(OrderRefusedSchema, {
      replicaId: order.replicaId,
      orderRevision: order.orderRevision,
      heldRevision,
      heldEpoch,
      reason,
    });
    this.notify((listener) => listener.onRefused(refusal));
  }

  private removeForgotten(replicaId: string): void {
    const runner = this.runners.get(replicaId);
    if (runner === undefined) return;
    this.runners.delete(replicaId);
    const report = toReplicaReport(withStoredEnd(runner.current));
    report.containerId = '';
    report.earlierContainerIds = [];
    report.forgotten = true;
    this.notify((listener) => listener.onForgotten(report));
    this.options.log.info('replica forgotten', {
      replicaId,
      phase: ReplicaStatus_Phase[report.phase],
    });
  }

  /**
   * Acknowledges a forget order for a replica that is not on this node. The coordinator repeats the
   * order until it is acknowledged.
   */
  private acknowledgeForget({ replicaId, workloadUid, orderRevision }: Order): void {
    const phase = ReplicaStatus_Phase.STOPPED;
    const report = create(ReplicaReportSchema, {
      replicaId,
      workloadUid,
      orderRevision,
      phase,
      forgotten: true,
    });
    this.notify((listener) => listener.onForgotten(report));
  }

  private notify(call: (listener: ReplicaListener) => void): void {
    for (const listener of [...this.listeners]) call(listener);
  }
}

/** True for a runner whose first order has not been stored, and about which nothing is to report. */
function isBlank({ current: { heldRevision, activity, phase, reason } }: ReplicaRunner): boolean {
  return heldRevision === 0n && activity.kind === 'none' && !isEnded(phase) && reason === '';
}

function toList<Item>(item: Item | undefined): readonly Item[] {
  return item === undefined ? [] : [item];
}
