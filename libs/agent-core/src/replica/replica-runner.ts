import { fromBinary } from '@bufbuild/protobuf';
import {
  definedFields,
  errorFields,
  errorKindOf,
  errorMessageOf,
  randomHex,
  toContainerId,
  type Clock,
  type ContainerId,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import { OrderSchema, type Order } from '@cloudless/api';
import type { ContainerRuntime, ContainerStatus } from '@cloudless/runtime';
import type { AgentStore } from '../store/agent-store.js';
import type { CoordinatorContact } from '../session/coordinator-contact.js';
import type { ProbeClients } from '../probes/check-container.js';
import { probeContainer, type ProbeListener } from '../probes/probe-container.js';
import { SerialQueue } from '../store/serial-queue.js';
import { waitForPorts, type TcpConnect } from '../container/wait-for-ports.js';
import { readLastLines } from '../container/last-lines.js';
import { hasFailed, reduceReplica, RUNTIME_RETRY_MS } from './reduce-replica.js';
import { isUncertain, removeContainers, startContainer } from './replica-containers.js';
import { ReplicaPreparation } from './replica-preparation.js';
import { ReplicaLease } from './replica-lease.js';
import {
  isEnded,
  type ContainerExit,
  type CurrentContainer,
  type ReplicaTransition,
  type ReplicaEffect,
  type ReplicaEvent,
  type ReplicaState,
} from './replica-state.js';
import { createLostExit, toContainerExit } from './restore-replica.js';
import type { StartQueue, QueuedStart } from '../container/start-queue.js';
import {
  toOrderEvent,
  toStoredProgress,
  toStoredReplica,
  withOrder,
  type ReplicaOrders,
} from './stored-orders.js';

export interface ReplicaRunnerDeps {
  readonly clusterId: () => string;
  readonly nodeId: string;
  readonly bootId: string;
  readonly runtime: ContainerRuntime;
  readonly store: AgentStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly connect: TcpConnect;
  readonly probeClients: ProbeClients;
  /** Start queue of the node, shared by all replicas. */
  readonly starts: StartQueue;
  /** Contact with coordinators; the leases of exclusive replicas depend on it. */
  readonly contact: CoordinatorContact;
  /** Called after every change that is part of a report. */
  readonly onChanged: (replicaId: string) => void;
  /** Called once all data of the replica has been removed. */
  readonly onForgotten: (replicaId: string) => void;
}

/** Outcome of an order. */
export type OrderOutcome =
  | { readonly kind: 'accepted' }
  /** The same order was accepted before. */
  | { readonly kind: 'repeated' }
  | { readonly kind: 'refused'; readonly reason: string }
  /** The order could not be stored, so it was not carried out. */
  | { readonly kind: 'failed' }
  /** The replica has been forgotten, or the agent is stopping. */
  | { readonly kind: 'over' };

/** Runs one replica: feeds events to {@link reduceReplica} and carries out the effects. */
export class ReplicaRunner {
  private state: ReplicaState;
  private orders: ReplicaOrders;
  private readonly writes = new SerialQueue();
  private savedProgress = '';
  private saveQueued = false;
  private timer: Timer | undefined;
  private portChecks: AbortController | undefined;
  private probes: AbortController | undefined;
  private readonly closing = new AbortController();
  /** Image pull of the newest start. */
  private preparation: ReplicaPreparation | undefined;
  /** Position of the newest start in the start queue. */
  private queuedStart: QueuedStart | undefined;
  /** Id of the newest container for which the start call was made. */
  private attemptedId: ContainerId | undefined;
  /** Failed container whose last lines are being read. */
  private readingLinesOf: ContainerId | undefined;
  /** Start time of the newest container on the monotonic clock. */
  private startedAt: { readonly id: ContainerId; readonly at: number } | undefined;
  readonly lease: ReplicaLease;
  private readonly log: Log;

  constructor(
    private readonly deps: ReplicaRunnerDeps,
    initial: ReplicaState,
    orders: ReplicaOrders,
  ) {
    this.state = initial;
    this.orders = orders;
    this.log = deps.log.child({ replicaId: initial.replicaId });
    this.lease = new ReplicaLease({ ...deps, log: this.log }, () => this.state);
    const { container } = initial;
    if (container !== undefined) {
      this.startedAt = {
        id: container.id,
        at: deps.clock.now() - Math.max(0, deps.clock.wallTime() - container.startedAtMs),
      };
    }
  }

  get current(): ReplicaState {
    return this.state;
  }

  /** True after `close` and after the replica has been forgotten. */
  get isOver(): boolean {
    return this.closing.signal.aborted;
  }

  /** The stored start order; its labels name the workload. */
  get startOrder(): Order | undefined {
    return this.orders.start === undefined ? undefined : fromBinary(OrderSchema, this.orders.start);
  }

  /** Carries out the effects of a restored state. */
  resume(effects: readonly ReplicaEffect[]): void {
    for (const effect of effects) this.perform(effect);
    this.queueProgressSave();
  }

  /**
   * Stores an order, then carries it out. Refuses an order that is older than the stored one.
   * Orders are handled one after the other.
   */
  handleOrder(order: Order, raiseEpoch: () => Promise<void>): Promise<OrderOutcome> {
    return this.writes.run(async (): Promise<OrderOutcome> => {
      if (this.isOver) return { kind: 'over' };
      const { heldRevision } = this.state;
      if (order.orderRevision < heldRevision)
        return { kind: 'refused', reason: 'the agent has a newer order for this replica' };
      if (this.isRepeat(order)) return { kind: 'repeated' };
      let event: ReplicaEvent;
      try {
        event = toOrderEvent(order, this.createContainerId());
      } catch (reason) {
        return { kind: 'refused', reason: errorMessageOf(reason) };
      }
      const orders = withOrder(this.orders, order, this.deps.bootId);
      const { orderRevision: newRevision, workloadUid } = order;
      const target = event.kind === 'startOrdered' ? event.target : undefined;
      try {
        await raiseEpoch();
        // A lease is added before the order is stored and removed after it: a container whose
        // stored order is exclusive then always has a lease, whenever the agent crashes.
        if (target?.stopAfterMs !== undefined) await this.lease.adjust(target);
        await this.deps.store.saveReplica(
          toStoredReplica({ ...this.state, heldRevision: newRevision, workloadUid }, orders),
        );
        if (target !== undefined) await this.lease.adjust(target);
      } catch (reason) {
        this.log.error('order not stored', {
          revision: order.orderRevision,
          ...errorFields(reason),
        });
        await this.lease.restore();
        return { kind: 'failed' };
      }
      if (this.closing.signal.aborted) return { kind: 'accepted' }; // carried out by the next agent
      this.orders = orders;
      if (this.state.workloadUid === '')
        this.state = { ...this.state, workloadUid: order.workloadUid };
      this.apply(event);
      return { kind: 'accepted' };
    });
  }

  /** Handles the exit of a container of this replica. */
  onExited(status: ContainerStatus): void {
    const upMs =
      this.startedAt?.id === status.containerId ? this.deps.clock.now() - this.startedAt.at : 0;
    void this.handleExit(toContainerExit(status, upMs));
  }

  /** Handles the start of a container of this replica. */
  onRunning(status: ContainerStatus): void {
    const { activity, ended } = this.state;
    const isOwn = 'containerId' in activity && activity.containerId === status.containerId;
    if (isOwn) this.recordStart(status);
    this.apply({ kind: 'started', status });
    if (!isOwn && !ended.includes(status.containerId))
      void this.removeStrayContainer(status.containerId);
  }

  /** Handles a container that should run and that the runtime does not list. */
  onLost(containerId: ContainerId): void {
    this.apply({ kind: 'exited', exit: createLostExit(containerId) });
  }

  /**
   * Marks the replica as not ready when its container is one of these, whose main processes no
   * longer exist.
   */
  markProcessGone(containerIds: ReadonlySet<string>): void {
    const { activity } = this.state;
    if (activity.kind !== 'running' || !containerIds.has(activity.containerId)) return;
    this.portChecks?.abort(); // a probe of an exited process gives no useful result
    this.probes?.abort();
    this.apply({ kind: 'processGone', containerId: activity.containerId });
  }

  /**
   * Gives up a start that needs the container runtime after the runtime has not answered for too
   * long. Has no effect on plain processes.
   */
  giveUpStart(): void {
    const { activity, target } = this.state;
    if (target?.usesImage !== true) return;
    const uncertain =
      'containerId' in activity &&
      activity.containerId !== undefined &&
      activity.containerId === this.attemptedId;
    this.apply({ kind: 'runtimeAway', uncertain });
  }

  /**
   * Reads the last lines of a failed container before the exit is handled, so that one report has
   * both.
   */
  private async handleExit(exit: ContainerExit): Promise<void> {
    if (!hasFailed(this.state, exit)) return this.apply({ kind: 'exited', exit });
    if (this.readingLinesOf === exit.containerId) return; // the exit was reported twice
    this.readingLinesOf = exit.containerId;
    this.portChecks?.abort(); // a probe of an exited process gives no useful result
    this.probes?.abort();
    const observedAt = this.deps.clock.now();
    const lastLines = await readLastLines(exit.containerId, this.deps, this.closing.signal);
    this.apply({ kind: 'exited', exit: { ...exit, lastLines } }, observedAt);
  }

  /** Stops handling the replica. Resolves when pending writes are on disk. */
  async close(): Promise<void> {
    this.closing.abort();
    this.timer?.cancel();
    this.preparation?.cancel();
    this.portChecks?.abort();
    this.probes?.abort();
    await this.writes.idle();
  }

  /** @param observedAt - Time of the event on the monotonic clock; restart delays count from it. */
  private apply(event: ReplicaEvent, observedAt = this.deps.clock.now()): void {
    if (this.closing.signal.aborted) return;
    const before = this.state;
    const reduced: ReplicaTransition = reduceReplica(before, event);
    this.state = reduced.state;
    if (reduced.state === before && reduced.effects.length === 0) return;
    this.logChange(before, event);
    this.cancelStale();
    for (const effect of reduced.effects) this.perform(effect, observedAt);
    this.cancelQueuedStart();
    this.queueProgressSave();
    this.deps.onChanged(this.state.replicaId);
  }

  /** Cancels timers and checks that do not belong to the current activity. */
  private cancelStale(): void {
    const { kind } = this.state.activity;
    if (kind !== 'backingOff' && kind !== 'leaving') this.timer?.cancel();
    if (kind !== 'starting') this.preparation?.cancel();
    if (kind === 'running') return;
    this.portChecks?.abort();
    this.probes?.abort();
  }

  private perform(effect: ReplicaEffect, observedAt = this.deps.clock.now()): void {
    switch (effect.kind) {
      case 'start':
        this.prepareAndStart(effect.containerId);
        return;
      case 'startAfter':
        this.schedule(observedAt + effect.delayMs - this.deps.clock.now(), () =>
          this.apply({ kind: 'startDue', newContainerId: this.createContainerId() }),
        );
        return;
      case 'terminateAfter':
        this.schedule(effect.delayMs, () => this.apply({ kind: 'stopDue' }));
        return;
      case 'awaitReady': {
        const { container, ports } = effect;
        const endpoints = container.endpoints.filter(({ portName }) => ports.includes(portName));
        this.portChecks?.abort();
        this.portChecks = new AbortController();
        waitForPorts(endpoints, this.deps, this.portChecks.signal).then(
          () => this.apply({ kind: 'accepted', containerId: container.id }),
          () => undefined, // aborted: the container has exited
        );
        return;
      }
      case 'probe':
        this.startProbes(effect.container, effect.wasReady);
        return;
      case 'terminate':
        void this.terminate(effect.containerId, effect.graceMs);
        return;
      case 'discard':
        void this.removeStrayContainer(effect.containerId);
        return;
      case 'remove':
        this.deps.runtime.remove(effect.containerId).catch((reason: unknown) => {
          this.log.warn('container not removed', {
            containerId: effect.containerId,
            ...errorFields(reason),
          });
        });
        return;
      case 'forget':
        void this.forget();
        return;
    }
  }

  private startProbes(container: CurrentContainer, wasReady: boolean): void {
    const { id: containerId } = container;
    const upMs = this.startedAt?.id === containerId ? this.deps.clock.now() - this.startedAt.at : 0;
    this.probes?.abort();
    this.probes = new AbortController();
    const listener: ProbeListener = {
      onStartupPassed: () => this.apply({ kind: 'startedUp', containerId }),
      onReadiness: (ready, reason) => this.apply({ kind: 'probed', containerId, ready, reason }),
      onUnhealthy: (reason) => this.apply({ kind: 'unhealthy', containerId, reason }),
    };
    const schedules = this.state.target?.probes ?? {};
    void probeContainer(
      { schedules, container, upMs, wasReady },
      listener,
      { ...this.deps, log: this.log },
      this.probes.signal,
    );
  }

  /**
   * Pulls the image before the start enters the start queue, so that a slow registry does not delay
   * other starts.
   */
  private prepareAndStart(containerId: ContainerId): void {
    if (this.state.target?.usesImage !== true) return this.enqueueStart(containerId);
    const { restarts } = this.state;
    this.preparation = new ReplicaPreparation(
      this.startOrder,
      { containerId, restarts },
      this.deps,
      {
        onPull: (pull) => this.apply({ kind: 'pullChanged', containerId, pull }),
        onDone: () => this.enqueueStart(containerId),
        onFailed: (reason, pull) => {
          // warns once per cause, not at each attempt
          const level = this.state.reason.includes(errorMessageOf(reason)) ? 'debug' : 'warn';
          this.log[level]('container not prepared', { containerId, ...errorFields(reason) });
          const uncertain = this.attemptedId === containerId;
          const unreachable = isUncertain(reason);
          const failure = pull === undefined ? {} : { pull };
          this.apply({
            kind: 'startFailed',
            containerId,
            reason: errorMessageOf(reason),
            uncertain,
            unreachable,
            ...failure,
          });
        },
      },
    );
  }

  private enqueueStart(containerId: ContainerId): void {
    this.queuedStart = this.deps.starts.add(this.state.restarts > 0 ? 'restart' : 'first', () =>
      this.start(containerId),
    );
    if (this.queuedStart.isWaiting) this.apply({ kind: 'startQueued', containerId });
  }

  /**
   * Cancels a start that still waits for its image or in the start queue when the replica is to
   * stop.
   */
  private cancelQueuedStart(): void {
    const { activity, stop } = this.state;
    if (stop === undefined || activity.kind !== 'starting') return;
    if (this.preparation?.cancel() !== true && this.queuedStart?.cancel() !== true) return;
    const { containerId } = activity;
    // An earlier attempt with this id may have started the container.
    this.apply({
      kind: 'startFailed',
      containerId,
      reason: 'stopped before it was started',
      uncertain: this.attemptedId === containerId,
    });
  }

  private async start(containerId: ContainerId): Promise<void> {
    const { activity } = this.state;
    // an event of the runtime has reported the start meanwhile
    if (this.isOver || activity.kind !== 'starting' || activity.containerId !== containerId) return;
    const lease = this.lease.computeLease();
    if (lease !== undefined && lease.leaseMs <= 0)
      return this.apply({ kind: 'outOfContact', containerId });
    this.lease.recordStart(containerId);
    const wasAttempted = this.attemptedId === containerId;
    this.attemptedId = containerId;
    try {
      const start = {
        containerId,
        restarts: this.state.restarts,
        ...definedFields({ lease }),
      };
      const status = await startContainer(this.startOrder, start, this.deps);
      this.onRunning(status);
      if (status.phase === 'exited') this.onExited(status);
    } catch (reason) {
      this.log.warn('container not started', { containerId, ...errorFields(reason) });
      const unreachable = isUncertain(reason);
      const uncertain = unreachable || wasAttempted; // see isUncertain
      const lastLines = unreachable
        ? []
        : await readLastLines(containerId, this.deps, this.closing.signal);
      this.apply({
        kind: 'startFailed',
        containerId,
        reason: errorMessageOf(reason),
        uncertain,
        unreachable,
        lastLines,
      });
    }
  }

  /**
   * Removes a container that was started by a given-up attempt or by an earlier agent, while
   * another container runs for the replica.
   */
  private async removeStrayContainer(containerId: ContainerId): Promise<void> {
    const { runtime } = this.deps;
    for (let failures = 0; !this.isOver; failures += 1) {
      try {
        await runtime.stop(containerId, 0);
        return await runtime.remove(containerId);
      } catch (reason) {
        if (errorKindOf(reason) === 'notFound') return;
        const level = failures === 0 ? 'warn' : 'debug'; // warns once per outage of the runtime
        this.log[level]('container of a given-up start not removed', {
          containerId,
          ...errorFields(reason),
        });
      }
      await this.waitForRetry();
    }
  }

  private async terminate(containerId: ContainerId, graceMs: number): Promise<void> {
    for (;;) {
      try {
        this.onExited(await this.deps.runtime.stop(containerId, graceMs));
        return;
      } catch (reason) {
        if (this.closing.signal.aborted) return;
        if (errorKindOf(reason) === 'notFound') return this.onLost(containerId);
        this.log.warn('container not stopped', { containerId, ...errorFields(reason) });
      }
      await this.waitForRetry();
      const { activity } = this.state;
      if (activity.kind === 'ended' || this.closing.signal.aborted) return;
    }
  }

  /** Removes every container of the replica, then its stored data. */
  private async forget(): Promise<void> {
    const { store, onForgotten } = this.deps;
    const { replicaId } = this.state;
    while (!this.closing.signal.aborted) {
      try {
        await removeContainers(replicaId, this.deps);
        await this.writes.run(async () => {
          await store.removeReplica(replicaId);
          this.closing.abort(); // before a queued order can store the replica again
          onForgotten(replicaId);
        });
        return;
      } catch (reason) {
        this.log.warn('replica not forgotten yet', errorFields(reason));
        await this.waitForRetry();
      }
    }
  }

  private isRepeat(order: Order): boolean {
    if (
      order.orderRevision !== this.state.heldRevision ||
      this.state.activity.kind === 'unconfirmed'
    )
      return false;
    // A stop order and the forget order after it can have the same revision when nothing was
    // committed in between.
    if (order.order.case === 'forget') return this.state.forget;
    return order.order.case === 'start'
      ? this.orders.start !== undefined
      : this.orders.end !== undefined;
  }

  /**
   * Queues a save of the progress; at most one save waits. Only orders must be on disk before they
   * are carried out.
   */
  private queueProgressSave(): void {
    if (this.saveQueued || (this.orders.start === undefined && this.orders.end === undefined))
      return;
    this.saveQueued = true;
    void this.writes.run(async () => {
      this.saveQueued = false;
      const { state, orders } = this;
      const key = JSON.stringify(toStoredProgress(state));
      if (key === this.savedProgress || state.activity.kind === 'unconfirmed') return;
      if (isEnded(state.phase) && state.forget) return; // will be removed from the store
      try {
        await this.deps.store.saveReplica(toStoredReplica(state, orders));
        this.savedProgress = key;
      } catch (reason) {
        this.log.warn('progress not stored', errorFields(reason));
      }
    });
  }

  private recordStart(status: ContainerStatus): void {
    if (this.startedAt?.id !== status.containerId)
      this.startedAt = { id: status.containerId, at: this.deps.clock.now() };
  }

  private schedule(delayMs: number, action: () => void): void {
    this.timer?.cancel();
    this.timer = this.deps.clock.setTimer(delayMs, action);
  }

  private waitForRetry(): Promise<void> {
    return new Promise((resolve) => {
      this.deps.clock.setTimer(RUNTIME_RETRY_MS, resolve);
    });
  }

  private createContainerId(): ContainerId {
    return toContainerId(randomHex(this.deps.random, 32));
  }

  private logChange(before: ReplicaState, event: ReplicaEvent): void {
    const { phase, ready, reason, container, restarts, activity } = this.state;
    const killed = activity.kind === 'killing' && before.activity.kind !== 'killing';
    if (phase === before.phase && ready === before.ready && restarts === before.restarts && !killed)
      return;
    this.log.info('replica changed', {
      cause: event.kind,
      phase,
      ready,
      reason,
      restarts,
      containerId: container?.id,
    });
  }
}
