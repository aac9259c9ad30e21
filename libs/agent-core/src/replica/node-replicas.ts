import { create, fromBinary } from '@bufbuild/protobuf';
import { errorFields, type StopSignal } from '@cloudless/base';
import {
  OrderRefusedSchema,
  OrderSchema,
  ReplicaReportSchema,
  ReplicaStatus_Phase,
  type Order,
  type OrderRefused,
  type ReplicaReport,
} from '@cloudless/api';
import type { ContainerEvent, ContainerStatus } from '@cloudless/runtime';
import type { StoredReplica } from '../agent-store.js';
import type { IdentityKeeper } from '../identity-keeper.js';
import { fromContainerLabels, type ContainerOwner } from './container-labels.js';
import { readLastLines } from './last-lines.js';
import { toReplicaPlan } from './replica-plan.js';
import { ReplicaRunner, type ReplicaRunnerDeps } from './replica-runner.js';
import { isEnded, newReplica } from './replica-state.js';
import { failedMeanwhile, restoreOrphan, restoreReplica } from './restore-replica.js';
import { keptStopOf } from './stored-orders.js';
import { StartQueue } from './start-queue.js';
import { toReplicaReport } from './to-replica-report.js';

/** Hears of everything that the coordinator should be told. */
export interface ReplicaListener {
  /** The report of this replica has changed, or is asked for again. */
  changed(replicaId: string): void;
  refused(refusal: OrderRefused): void;
  /** Nothing is left of the replica; the report acknowledges the order that said so. */
  gone(report: ReplicaReport): void;
}

/** Needs of {@link NodeReplicas}. */
export type NodeReplicasOptions = Omit<
  ReplicaRunnerDeps,
  'onChanged' | 'onForgotten' | 'clusterId' | 'starts'
> & {
  readonly identity: IdentityKeeper;
  /** See `AgentOptions`. */
  readonly startConcurrency?: number;
};

/** Enough to keep a small machine busy with starting. */
const DEFAULT_START_CONCURRENCY = 4;

/** As ids are made by coordinators: refuses what could not be a file name or a label. */
const REPLICA_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** All replicas of this node. Only explicit orders make or end one. */
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
      onChanged: (replicaId) => this.tell((listener) => listener.changed(replicaId)),
      onForgotten: (replicaId) => this.forgotten(replicaId),
    };
  }

  /**
   * Takes up what an earlier agent left: its orders, and the containers that the runtime has.
   * @param signal - Gives up reading what they wrote.
   * @throws kind `internal` when a kept order cannot be read.
   */
  async restore(
    stored: readonly StoredReplica[],
    containers: readonly ContainerStatus[],
    signal: StopSignal,
  ): Promise<void> {
    const byReplica = this.byReplica(containers);
    const lastLines = await this.linesOfFailed(stored, byReplica, signal);
    for (const replica of stored) {
      const plan =
        replica.start === undefined
          ? undefined
          : toReplicaPlan(fromBinary(OrderSchema, replica.start));
      const end = replica.end === undefined ? undefined : keptStopOf(replica.end, plan);
      const { state, effects } = restoreReplica({
        stored: replica,
        ...(plan === undefined ? {} : { plan }),
        ...(end === undefined ? {} : { stop: end.stop }),
        forget: end?.forget ?? false,
        containers: byReplica.get(replica.replicaId) ?? [],
        bootId: this.options.bootId,
        lastLines: lastLines.get(replica.replicaId) ?? [],
      });
      byReplica.delete(replica.replicaId);
      const runner = new ReplicaRunner(this.deps, state, replica);
      this.runners.set(replica.replicaId, runner);
      runner.resume(effects);
    }
    this.adoptOrphans([...byReplica.values()].flat());
  }

  /** Takes up containers of this agent whose replicas it does not know. */
  adoptOrphans(containers: readonly ContainerStatus[]): void {
    for (const [replicaId, statuses] of this.byReplica(containers)) {
      if (this.runners.has(replicaId)) continue;
      const { state, effects } = restoreOrphan(replicaId, statuses);
      const runner = new ReplicaRunner(this.deps, state, { bootId: this.options.bootId });
      this.runners.set(replicaId, runner);
      runner.resume(effects);
      this.options.log.warn('container without order found', { replicaId });
    }
  }

  /**
   * Obeys or refuses an order; resolves when it is on disk or refused. Orders for one replica are
   * taken in the order given.
   */
  async handle(order: Order): Promise<void> {
    const { identity, log } = this.options;
    const held = this.runners.get(order.replicaId);
    if (order.epoch < identity.current.highestEpoch)
      return this.refuse(order, 'a coordinator of a newer epoch was heard');
    if (!REPLICA_ID.test(order.replicaId)) return this.refuse(order, 'malformed replica id');
    if (held === undefined && order.order.case === 'forget') return this.tellForgotten(order);
    const runner =
      held ??
      new ReplicaRunner(this.deps, newReplica(order.replicaId, order.workloadUid), {
        bootId: this.options.bootId,
      });
    this.runners.set(order.replicaId, runner);
    const outcome = await runner.order(order, () => identity.raiseEpoch(order.epoch));
    if (isBlank(runner)) this.runners.delete(order.replicaId); // nothing came of it
    switch (outcome.kind) {
      case 'accepted':
        if (!runner.isOver) this.runners.set(order.replicaId, runner);
        log.info('order accepted', {
          replicaId: order.replicaId,
          revision: order.orderRevision,
          epoch: order.epoch,
          order: order.order.case,
        });
        return;
      case 'repeated':
        return this.tell((listener) => listener.changed(order.replicaId));
      case 'refused':
        return this.refuse(order, outcome.reason);
      case 'failed':
        return; // logged there; the coordinator repeats it
      case 'over':
        // for what comes after it
        return this.runners.get(order.replicaId) === runner ? undefined : this.handle(order);
    }
  }

  /** The runtime said so. */
  observe({ kind, status }: ContainerEvent): void {
    const owner = this.ownerOf(status);
    if (owner === undefined) return;
    const runner = this.runners.get(owner.replicaId);
    if (runner === undefined) {
      if (status.phase === 'running') this.adoptLate(owner.replicaId, status);
      return;
    }
    if (kind === 'exited') runner.exited(status);
    else runner.running(status);
  }

  /**
   * A start that nobody saw the end of may show when its replica is forgotten: the coordinator says
   * what becomes of it.
   */
  private adoptLate(replicaId: string, status: ContainerStatus): void {
    this.adoptOrphans([status]);
    this.tell((listener) => listener.changed(replicaId));
  }

  /**
   * Ids of the containers that should run now. Taken before a list, so that none started meanwhile
   * is missed in it.
   */
  expected(): ReadonlyMap<string, string> {
    const running = [...this.runners].flatMap(([replicaId, { current }]) =>
      current.activity.kind === 'running' || current.activity.kind === 'leaving'
        ? [[replicaId, current.activity.containerId] as const]
        : [],
    );
    return new Map(running);
  }

  /** Catches up after events may have been missed. */
  compare(expected: ReadonlyMap<string, string>, containers: readonly ContainerStatus[]): void {
    const known = new Map(containers.map((status) => [status.containerId as string, status]));
    for (const status of containers)
      this.observe({ kind: status.phase === 'exited' ? 'exited' : 'started', status });
    for (const [replicaId, containerId] of expected) {
      if (known.has(containerId)) continue;
      const runner = this.runners.get(replicaId);
      const activity = runner?.current.activity;
      if (
        activity !== undefined &&
        'containerId' in activity &&
        activity.containerId === containerId &&
        activity.containerId !== undefined
      ) {
        runner?.lost(activity.containerId);
      }
    }
  }

  /** A coordinator counts this node as alive: exclusive replicas may run on. */
  async renewLeases(): Promise<void> {
    const leases = new Map(
      [...this.runners.values()].flatMap((runner) => toList(runner.lease.toRenew())),
    );
    if (leases.size === 0) return;
    try {
      await this.options.runtime.renew(leases);
    } catch (reason) {
      this.options.log.warn('leases of exclusive replicas not renewed', errorFields(reason));
    }
  }

  /** How many replicas wait for their turn to be started. */
  get startsWaiting(): number {
    return this.starts.size;
  }

  find(replicaId: string): ReplicaRunner | undefined {
    return this.runners.get(replicaId);
  }

  all(): readonly ReplicaRunner[] {
    return [...this.runners.values()];
  }

  reportOf(replicaId: string): ReplicaReport | undefined {
    const runner = this.runners.get(replicaId);
    return runner === undefined || isBlank(runner) ? undefined : toReplicaReport(runner.current);
  }

  /**
   * Every replica, also one whose first order is still being written down: what an inventory leaves
   * out is taken for gone, and that one is going to run.
   */
  reports(): readonly ReplicaReport[] {
    return [...this.runners.values()].map(({ current }) => toReplicaReport(current));
  }

  /** @returns Ends the subscription. */
  listen(listener: ReplicaListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Who owns a container, when it is one of this agent. */
  ownerOf({ labels }: Pick<ContainerStatus, 'labels'>): ContainerOwner | undefined {
    const owner = fromContainerLabels(labels);
    return owner?.clusterId === this.options.identity.clusterId &&
      owner.nodeId === this.options.nodeId
      ? owner
      : undefined;
  }

  /** Does nothing more for any replica; what runs goes on. */
  async close(): Promise<void> {
    await Promise.all([...this.runners.values()].map((runner) => runner.close()));
  }

  /**
   * Ends every container, each with the grace of its own spec, and starts none again. For machines
   * that are put away.
   */
  async stopAll(): Promise<void> {
    await this.close();
    const { runtime, log } = this.options;
    const running = (await runtime.list()).filter(
      (status) => status.phase === 'running' && this.ownerOf(status) !== undefined,
    );
    await Promise.all(
      running.map(async (status) => {
        const graceMs =
          this.runners.get(this.ownerOf(status)?.replicaId ?? '')?.current.plan?.graceMs ?? 0;
        try {
          await runtime.stop(status.containerId, graceMs);
        } catch (reason) {
          log.warn('container not stopped', {
            containerId: status.containerId,
            ...errorFields(reason),
          });
        }
      }),
    );
  }

  private byReplica(containers: readonly ContainerStatus[]): Map<string, ContainerStatus[]> {
    const byReplica = new Map<string, ContainerStatus[]>();
    for (const status of containers) {
      const owner = this.ownerOf(status);
      if (owner !== undefined)
        byReplica.set(owner.replicaId, [...(byReplica.get(owner.replicaId) ?? []), status]);
    }
    return byReplica;
  }

  /** What those containers wrote last that have failed while no agent saw it, by replica. */
  private async linesOfFailed(
    stored: readonly StoredReplica[],
    byReplica: ReadonlyMap<string, readonly ContainerStatus[]>,
    signal: StopSignal,
  ): Promise<ReadonlyMap<string, readonly string[]>> {
    const read = stored.map(async (replica) => {
      const containerId = failedMeanwhile({
        stored: replica,
        containers: byReplica.get(replica.replicaId) ?? [],
      });
      const lines =
        containerId === undefined ? [] : await readLastLines(containerId, this.options, signal);
      return [replica.replicaId, lines] as const;
    });
    return new Map(await Promise.all(read));
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
    this.tell((listener) => listener.refused(refusal));
  }

  private forgotten(replicaId: string): void {
    const runner = this.runners.get(replicaId);
    if (runner === undefined) return;
    this.runners.delete(replicaId);
    const report = toReplicaReport(runner.current);
    report.containerId = '';
    report.earlierContainerIds = [];
    report.forgotten = true;
    this.tell((listener) => listener.gone(report));
    this.options.log.info('replica forgotten', {
      replicaId,
      phase: ReplicaStatus_Phase[report.phase],
    });
  }

  /**
   * There was nothing to forget, or not any more: says so, as the coordinator asks until it hears
   * that.
   */
  private tellForgotten({ replicaId, workloadUid, orderRevision }: Order): void {
    const phase = ReplicaStatus_Phase.STOPPED;
    const report = create(ReplicaReportSchema, {
      replicaId,
      workloadUid,
      orderRevision,
      phase,
      forgotten: true,
    });
    this.tell((listener) => listener.gone(report));
  }

  private tell(what: (listener: ReplicaListener) => void): void {
    for (const listener of [...this.listeners]) what(listener);
  }
}

/** Made for an order that is not on disk yet. */
function isBlank({ current }: ReplicaRunner): boolean {
  return current.heldRevision === 0n && current.activity.kind === 'none' && !isEnded(current.phase);
}

function toList<Item>(item: Item | undefined): readonly Item[] {
  return item === undefined ? [] : [item];
}
