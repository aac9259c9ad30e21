import {
  errorFields,
  errorKindOf,
  errorMessageOf,
  type ContainerId,
  type Log,
  type Timer,
} from '@cloudless/base';
import type { Order } from '@cloudless/api';
import type { ContainerKind, ContainerStatus } from '@cloudless/runtime';
import { createContainerId } from '../container/container-id.js';
import { readLastLines } from '../container/last-lines.js';
import type { StoredReplica } from '../store/agent-store.js';
import { ContainerChecks } from './container-checks.js';
import { ContainerRemoval } from './container-removal.js';
import { ContainerStarts } from './container-starts.js';
import { withNextStart } from './next-start.js';
import { describeNotStored, GIVE_UP_START_MS, mayGiveUpStart } from './order-storage.js';
import { hasFailed, reduceReplica } from './reduce-replica.js';
import type { ReplicaHost } from './replica-host.js';
import type { ReplicaRunnerDeps } from './replica-runner-deps.js';
import { ReplicaLease } from './replica-lease.js';
import type {
  ContainerExit,
  ReplicaEffect,
  ReplicaEvent,
  ReplicaState,
  ReplicaTransition,
} from './replica-state.js';
import { ReplicaStorage } from './replica-storage.js';
import { createLostExit, toContainerExit } from './restore-replica.js';
import { toOrderEvent, withOrder, type ReplicaOrders } from './stored-orders.js';

/** Outcome of an order. */
export type OrderOutcome =
  | { readonly kind: 'accepted' }
  /** The same order was accepted before. */
  | { readonly kind: 'repeated' }
  | { readonly kind: 'refused'; readonly reason: string }
  /** The start order could not be stored, so it was not carried out. */
  | { readonly kind: 'failed' }
  /** The stop or forget order could not be stored and is carried out; it is not acknowledged. */
  | { readonly kind: 'unstored' }
  /** The replica has been forgotten, or the agent is stopping. */
  | { readonly kind: 'closed' };

/**
 * Runs one replica: feeds events to {@link reduceReplica} and hands the effects to the classes that
 * carry them out.
 */
export class ReplicaRunner implements ReplicaHost {
  readonly lease: ReplicaLease;
  private state: ReplicaState;
  private readonly storage: ReplicaStorage;
  private readonly starts: ContainerStarts;
  private readonly checks: ContainerChecks;
  private readonly removal: ContainerRemoval;
  private readonly closing = new AbortController();
  private readonly log: Log;
  /** Back-off or pre-stop delay of the current activity. */
  private timer: Timer | undefined;
  /** Why the newest order could not be stored; empty once an order was stored. */
  private storeFailure = '';
  /**
   * Since when, in this session, no start order of the replica could be stored; undefined: none was
   * refused.
   */
  private refusedSinceMs: number | undefined;
  /** Failed container whose last lines are being read. */
  private readingLinesOf: ContainerId | undefined;

  constructor(
    private readonly deps: ReplicaRunnerDeps,
    initial: ReplicaState,
    orders: ReplicaOrders,
  ) {
    this.state = initial;
    this.log = deps.log.child({ replicaId: initial.replicaId });
    this.lease = new ReplicaLease({ ...deps, log: this.log }, () => this.state);
    this.storage = new ReplicaStorage(deps.store, this.log, orders);
    this.starts = new ContainerStarts(this, this.lease, deps, this.log);
    this.checks = new ContainerChecks(this, deps, this.log);
    this.removal = new ContainerRemoval(this, deps, this.log);
  }

  get current(): ReplicaState {
    return this.state;
  }

  /** True after `close` and after the replica has been forgotten. */
  get isClosed(): boolean {
    return this.closing.signal.aborted;
  }

  get signal(): AbortSignal {
    return this.closing.signal;
  }

  get startOrder(): Order | undefined {
    return this.storage.startOrder;
  }

  /** Carries out the effects of a restored state. */
  resume(effects: readonly ReplicaEffect[]): void {
    this.state = withNextStart({ state: this.state, effects }, this.deps.clock.wallTime());
    for (const effect of effects) this.perform(effect);
    this.storage.queueProgressSave(() => this.state);
  }

  /**
   * Stores an order, then carries it out. Refuses an order that is older than the newest order.
   * Orders are handled one after the other. A stop or forget order is carried out even when it
   * cannot be stored, and stored when the coordinator repeats it.
   * @param raiseEpoch - Stores the epoch of the order; called before the order is stored.
   */
  handleOrder(order: Order, raiseEpoch: () => Promise<void>): Promise<OrderOutcome> {
    return this.storage.enqueue(async (): Promise<OrderOutcome> => {
      if (this.isClosed) return { kind: 'closed' };
      if (order.orderRevision < this.state.heldRevision)
        return { kind: 'refused', reason: 'the agent has a newer order for this replica' };
      const isSame = this.storage.hasSame(order, this.state);
      if (isSame && this.state.unstored === undefined) return { kind: 'repeated' };
      let event: ReplicaEvent;
      try {
        event = toOrderEvent(order, this.createContainerId());
      } catch (reason) {
        return { kind: 'refused', reason: errorMessageOf(reason) };
      }
      const orders = withOrder(this.storage.orders, order, this.deps.bootId);
      try {
        await raiseEpoch();
        await this.storeOrder(order, event, orders);
        this.storeFailure = '';
        this.refusedSinceMs = undefined;
      } catch (reason) {
        this.logNotStored(order, reason);
        if (event.kind === 'startOrdered') return this.refuseStart(reason);
        await this.noteUnstoredEnd(reason);
        if (!isSame) this.carryOut(order, event, orders);
        return { kind: 'unstored' };
      }
      if (this.isClosed) return { kind: 'accepted' }; // the next agent carries out the stored order
      this.apply({ kind: 'endStored' });
      if (!isSame) this.carryOut(order, event, orders);
      return { kind: 'accepted' };
    });
  }

  private carryOut(order: Order, event: ReplicaEvent, orders: ReplicaOrders): void {
    this.storage.useOrders(orders);
    if (this.state.workloadUid === '')
      this.state = { ...this.state, workloadUid: order.workloadUid };
    this.apply(event);
  }

  private async refuseStart(reason: unknown): Promise<OrderOutcome> {
    await this.lease.restore();
    const nowMs = this.deps.clock.now();
    this.refusedSinceMs ??= nowMs;
    const mayGiveUp =
      errorKindOf(reason) === 'exhausted' &&
      nowMs - this.refusedSinceMs >= GIVE_UP_START_MS &&
      mayGiveUpStart(this.state);
    // A save that fails at its end may have stored the order, which the next agent would carry out.
    const isGivenUp = mayGiveUp && (await this.storage.tryRemove(this.state.replicaId));
    const kind = isGivenUp ? 'startGivenUp' : 'startNotStored';
    this.apply({ kind, reason: describeNotStored(reason) });
    return { kind: 'failed' };
  }

  /**
   * Prepares to carry out a stop or forget order that could not be stored. The next agent must not
   * start the replica again, so the store marks the replica, which needs no space.
   */
  private async noteUnstoredEnd(reason: unknown): Promise<void> {
    const { replicaId, heldRevision, phase, unstored } = this.state;
    this.apply({
      kind: 'endNotStored',
      unstored: {
        storedRevision: unstored?.storedRevision ?? heldRevision,
        // A mark lasts, and without a start order no agent starts the replica.
        isMarked:
          unstored?.isMarked === true ||
          (await this.storage.tryMarkStopped(replicaId)) ||
          this.storage.orders.start === undefined,
        phase,
        reason: describeNotStored(reason),
      },
    });
  }

  /** Logs an error at the first failure, not each time the coordinator repeats the order. */
  private logNotStored({ orderRevision: revision, order }: Order, reason: unknown): void {
    const message = errorMessageOf(reason);
    const level = message === this.storeFailure ? 'debug' : 'error';
    this.storeFailure = message;
    this.log[level]('order not stored', { revision, order: order.case, ...errorFields(reason) });
  }

  /**
   * Counts the time until a start is given up from the first refusal of a new session: nothing is
   * known about the disk while no order came.
   */
  noteSessionStarted(): void {
    this.refusedSinceMs = undefined;
  }

  /**
   * Ends the wait for network proxies of the stop order that was received before, if there is one.
   */
  noteEndpointsGone(): Promise<void> {
    // The order may not be stored yet.
    return this.storage.enqueue(async () => this.apply({ kind: 'endpointsGone' }));
  }

  /** Stored form of the replica with its newest orders. */
  get stored(): StoredReplica {
    return this.storage.toStored(this.state);
  }

  /** Replaces the state of an unlisted replica once its containers are known. */
  restore({ state, effects }: ReplicaTransition): void {
    if (this.isClosed || this.state.activity.kind !== 'unlisted') return;
    const { unstored } = this.state;
    this.state = unstored === undefined ? state : { ...state, unstored };
    this.checks.recordRestored();
    this.resume(effects);
    this.deps.onChanged(state.replicaId);
  }

  onExited(status: ContainerStatus): void {
    void this.handleExit(toContainerExit(status, this.checks.upMs(status.containerId)));
  }

  onRunning(status: ContainerStatus): void {
    const { activity, ended } = this.state;
    if (activity.kind === 'unlisted') return; // the complete list of containers includes this one
    const isOwn = 'containerId' in activity && activity.containerId === status.containerId;
    if (isOwn) this.checks.recordStart(status);
    this.apply({ kind: 'started', status });
    if (!isOwn && !ended.includes(status.containerId))
      void this.removal.removeStray(status.containerId);
  }

  /** Handles the loss of a container that should run and that the runtime does not list. */
  onLost(containerId: ContainerId): void {
    this.apply({ kind: 'exited', exit: createLostExit(containerId) });
  }

  /**
   * Marks the replica as not ready when its running container is one of `containerIds`.
   * @param containerIds - Containers whose main processes no longer exist.
   */
  markProcessGone(containerIds: ReadonlySet<string>): void {
    const { activity } = this.state;
    if (activity.kind !== 'running' || !containerIds.has(activity.containerId)) return;
    this.checks.cancel(); // a probe of an exited process gives no useful result
    this.apply({ kind: 'processGone', containerId: activity.containerId });
  }

  /**
   * Gives up a start after the runtime has not answered for too long. Has no effect on replicas that
   * another runtime starts.
   * @param kind - What the silent runtime starts.
   */
  giveUpStart(kind: ContainerKind): void {
    const { activity, target } = this.state;
    if (target?.usesImage !== (kind === 'container')) return;
    const containerId = 'containerId' in activity ? activity.containerId : undefined;
    this.apply({ kind: 'runtimeAway', uncertain: this.starts.isAttempted(containerId) });
  }

  apply(event: ReplicaEvent, observedAt = this.deps.clock.now()): void {
    if (this.isClosed) return;
    const before = this.state;
    const reduced: ReplicaTransition = reduceReplica(before, event);
    this.state = withNextStart(reduced, this.toWallTime(observedAt));
    if (reduced.state === before && reduced.effects.length === 0) return;
    this.logChange(before, event);
    this.cancelStale();
    for (const effect of reduced.effects) this.perform(effect, observedAt);
    this.starts.cancelIfStopping();
    this.storage.queueProgressSave(() => this.state);
    this.deps.onChanged(this.state.replicaId);
  }

  /**
   * Ends the control of the replica; its container keeps running. Resolves after pending writes.
   */
  async close(): Promise<void> {
    this.closing.abort();
    this.timer?.cancel();
    this.starts.cancel();
    this.checks.cancel();
    await this.storage.idle();
  }

  /**
   * Stores an order and adjusts the lease of the container. A lease is added before the order is
   * stored and removed after the order is stored: a container whose stored order is exclusive then
   * always has a lease, whenever the agent crashes.
   */
  private async storeOrder(
    { orderRevision: heldRevision, workloadUid }: Order,
    event: ReplicaEvent,
    orders: ReplicaOrders,
  ): Promise<void> {
    const target = event.kind === 'startOrdered' ? event.target : undefined;
    if (target?.stopAfterMs !== undefined) await this.lease.adjust(target);
    const state = { ...this.state, heldRevision, workloadUid };
    await this.storage.saveOrders(state, orders, { mayUseReserve: target === undefined });
    if (target !== undefined) await this.lease.adjust(target);
  }

  /**
   * Reads the last lines of a failed container before the exit is handled, so that one report has
   * both.
   */
  private async handleExit(exit: ContainerExit): Promise<void> {
    if (!hasFailed(this.state, exit)) return this.apply({ kind: 'exited', exit });
    if (this.readingLinesOf === exit.containerId) return; // the exit was reported twice
    this.readingLinesOf = exit.containerId;
    this.checks.cancel(); // a probe of an exited process gives no useful result
    const observedAt = this.deps.clock.now();
    const lastLines = await readLastLines(exit.containerId, this.deps, this.signal);
    this.apply({ kind: 'exited', exit: { ...exit, lastLines } }, observedAt);
  }

  /** Cancels timers and checks that do not belong to the current activity. */
  private cancelStale(): void {
    const { kind } = this.state.activity;
    if (kind !== 'backingOff' && kind !== 'leaving') this.timer?.cancel();
    if (kind !== 'starting') this.starts.cancel();
    if (kind !== 'running') this.checks.cancel();
  }

  private perform(effect: ReplicaEffect, observedAt = this.deps.clock.now()): void {
    switch (effect.kind) {
      case 'start':
        this.starts.prepareAndStart(effect.containerId);
        return;
      case 'startAfter':
        this.schedule(observedAt + effect.delayMs - this.deps.clock.now(), () =>
          this.apply({ kind: 'startDue', newContainerId: this.createContainerId() }),
        );
        return;
      case 'terminateAfter':
        this.schedule(effect.delayMs, () => this.apply({ kind: 'stopDue' }));
        return;
      case 'awaitReady':
        this.checks.awaitPorts(effect.container, effect.ports);
        return;
      case 'probe':
        this.checks.startProbes(effect.container, effect.wasReady);
        return;
      case 'terminate':
        void this.removal.terminate(effect.containerId, effect.graceMs);
        return;
      case 'discard':
        void this.removal.removeStray(effect.containerId);
        return;
      case 'remove':
        void this.removal.removeExited(effect.containerId);
        return;
      case 'forget':
        void this.removal.removeAll(() => this.forget());
        return;
    }
  }

  private async forget(): Promise<void> {
    const { replicaId } = this.state;
    await this.deps.workloadIdentities?.remove(replicaId);
    await this.deps.files?.remove(replicaId);
    return this.storage.remove(replicaId, () => {
      this.closing.abort(); // before a queued order can store the replica again
      this.deps.onForgotten(replicaId);
    });
  }

  /** Converts a time of the monotonic clock to milliseconds since the epoch. */
  private toWallTime(atMs: number): number {
    const { clock } = this.deps;
    return clock.wallTime() - (clock.now() - atMs);
  }

  private schedule(delayMs: number, action: () => void): void {
    this.timer?.cancel();
    this.timer = this.deps.clock.setTimer(delayMs, action);
  }

  private createContainerId(): ContainerId {
    const { clusterId, nodeId } = this.deps;
    const { replicaId, restarts } = this.state;
    return createContainerId({ clusterId: clusterId(), nodeId, replicaId, restarts });
  }

  private logChange(before: ReplicaState, event: ReplicaEvent): void {
    const { phase, ready, reason, container, restarts, failedStarts, activity } = this.state;
    const killed = activity.kind === 'killing' && before.activity.kind !== 'killing';
    if (phase === before.phase && ready === before.ready && restarts === before.restarts && !killed)
      return;
    this.log.info('replica changed', {
      cause: event.kind,
      phase,
      ready,
      reason,
      restarts,
      failedStarts,
      containerId: container?.id,
    });
  }
}
