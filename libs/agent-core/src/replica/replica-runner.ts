import { fromBinary } from '@bufbuild/protobuf';
import {
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
import type { AgentStore } from '../agent-store.js';
import type { Contact } from '../contact.js';
import type { ProbeClients } from '../probes/check-container.js';
import { probeContainer, type ProbeListener } from '../probes/probe-container.js';
import { SerialQueue } from '../serial-queue.js';
import { awaitReady, type TcpConnect } from './await-ready.js';
import { readLastLines } from './last-lines.js';
import { hasFailed, reduceReplica, RUNTIME_RETRY_MS } from './reduce-replica.js';
import { isUncertain, removeContainers, startContainer } from './replica-containers.js';
import { ReplicaPreparation } from './replica-preparation.js';
import { ReplicaLease } from './replica-lease.js';
import {
  isEnded,
  type ContainerExit,
  type CurrentContainer,
  type Reduced,
  type ReplicaEffect,
  type ReplicaEvent,
  type ReplicaState,
} from './replica-state.js';
import { lostExit, toContainerExit } from './restore-replica.js';
import type { StartQueue, StartTurn } from './start-queue.js';
import {
  toOrderEvent,
  toStoredProgress,
  toStoredReplica,
  withOrder,
  type ReplicaOrders,
} from './stored-orders.js';

/** What a runner works with. */
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
  /** Shared by all replicas of the node. */
  readonly starts: StartQueue;
  /** What exclusive replicas live by. */
  readonly contact: Contact;
  /** Told after every change that a report shows. */
  readonly onChanged: (replicaId: string) => void;
  /** Told once nothing is left of the replica. */
  readonly onForgotten: (replicaId: string) => void;
}

/** What became of an order. */
export type OrderOutcome =
  | { readonly kind: 'accepted' }
  /** Had been accepted before. */
  | { readonly kind: 'repeated' }
  | { readonly kind: 'refused'; readonly reason: string }
  /** Could not be written down, so it was not acted upon. */
  | { readonly kind: 'failed' }
  /** The replica was forgotten, or the agent stops. */
  | { readonly kind: 'over' };

/** Carries out what {@link reduceReplica} asks for, for one replica, as long as the agent lives. */
export class ReplicaRunner {
  private state: ReplicaState;
  private orders: ReplicaOrders;
  private readonly writes = new SerialQueue();
  private savedProgress = '';
  private saveQueued = false;
  private timer: Timer | undefined;
  private readiness: AbortController | undefined;
  private probing: AbortController | undefined;
  private readonly closing = new AbortController();
  /** Of the newest start, before its turn. */
  private preparing: ReplicaPreparation | undefined;
  /** Of the newest start. */
  private turn: StartTurn | undefined;
  /** The newest container that the runtime was asked to start. */
  private tried: ContainerId | undefined;
  /** The container that has failed and whose last lines are being read. */
  private readingLines: ContainerId | undefined;
  /** Start of the newest container on the monotonic clock. */
  private startedAt: { readonly id: ContainerId; readonly at: number } | undefined;
  /** What an exclusive replica lives by. */
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

  /** Whether it does nothing any more: closed, or forgotten. */
  get isOver(): boolean {
    return this.closing.signal.aborted;
  }

  /** The start order as kept; its labels name the workload. */
  get startOrder(): Order | undefined {
    return this.orders.start === undefined ? undefined : fromBinary(OrderSchema, this.orders.start);
  }

  /** Goes on with what a restored state asks for. */
  resume(effects: readonly ReplicaEffect[]): void {
    for (const effect of effects) this.perform(effect);
    this.saveProgressSoon();
  }

  /**
   * Obeys an order, once it is on disk; refuses one that is older than the one held. One after the
   * other.
   */
  order(order: Order, raiseEpoch: () => Promise<void>): Promise<OrderOutcome> {
    return this.writes.run(async (): Promise<OrderOutcome> => {
      if (this.isOver) return { kind: 'over' };
      const { heldRevision } = this.state;
      if (order.orderRevision < heldRevision)
        return { kind: 'refused', reason: 'a newer order is held for this replica' };
      if (this.isRepeat(order)) return { kind: 'repeated' };
      let event: ReplicaEvent;
      try {
        event = toOrderEvent(order, this.newContainerId());
      } catch (reason) {
        return { kind: 'refused', reason: errorMessageOf(reason) };
      }
      const orders = withOrder(this.orders, order, this.deps.bootId);
      const { orderRevision: heldNow, workloadUid } = order;
      const plan = event.kind === 'startOrdered' ? event.plan : undefined;
      try {
        await raiseEpoch();
        // A lease comes before the order is on disk and goes after it: what an agent finds as
        // exclusive has one, whenever the last one died.
        if (plan?.stopAfterMs !== undefined) await this.lease.adjust(plan);
        await this.deps.store.saveReplica(
          toStoredReplica({ ...this.state, heldRevision: heldNow, workloadUid }, orders),
        );
        if (plan !== undefined) await this.lease.adjust(plan);
      } catch (reason) {
        this.log.error('order not kept', { revision: order.orderRevision, ...errorFields(reason) });
        await this.lease.restore();
        return { kind: 'failed' };
      }
      if (this.closing.signal.aborted) return { kind: 'accepted' }; // obeyed after the restart
      this.orders = orders;
      if (this.state.workloadUid === '')
        this.state = { ...this.state, workloadUid: order.workloadUid };
      this.apply(event);
      return { kind: 'accepted' };
    });
  }

  /** The runtime says that a container of this replica has ended. */
  exited(status: ContainerStatus): void {
    const known =
      this.startedAt?.id === status.containerId ? this.deps.clock.now() - this.startedAt.at : 0;
    void this.ended(toContainerExit(status, known));
  }

  /** The runtime says that a container of this replica runs. */
  running(status: ContainerStatus): void {
    const { activity, ended } = this.state;
    const isOwn = 'containerId' in activity && activity.containerId === status.containerId;
    if (isOwn) this.noteStart(status);
    this.apply({ kind: 'started', status });
    if (!isOwn && !ended.includes(status.containerId)) void this.endStray(status.containerId);
  }

  /** The runtime does not have the container that should run. */
  lost(containerId: ContainerId): void {
    this.apply({ kind: 'exited', exit: lostExit(containerId) });
  }

  /**
   * Marks the replica as not ready when its container is one of these, whose main processes no
   * longer exist.
   */
  withoutProcess(containerIds: ReadonlySet<string>): void {
    const { activity } = this.state;
    if (activity.kind !== 'running' || !containerIds.has(activity.containerId)) return;
    this.readiness?.abort(); // a probe of a dead process tells nothing new
    this.probing?.abort();
    this.apply({ kind: 'processGone', containerId: activity.containerId });
  }

  /**
   * Gives up a start that needs the container runtime, which has not answered for too long. Plain
   * processes do not need it.
   */
  giveUpStart(): void {
    const { activity, plan } = this.state;
    if (plan?.image !== true) return;
    const uncertain =
      'containerId' in activity &&
      activity.containerId !== undefined &&
      activity.containerId === this.tried;
    this.apply({ kind: 'runtimeAway', uncertain });
  }

  /** What a container that has failed wrote last goes into the same report as its end. */
  private async ended(exit: ContainerExit): Promise<void> {
    if (!hasFailed(this.state, exit)) return this.apply({ kind: 'exited', exit });
    if (this.readingLines === exit.containerId) return; // heard before
    this.readingLines = exit.containerId;
    this.readiness?.abort(); // a probe of a dead process tells nothing new
    this.probing?.abort();
    const heardAt = this.deps.clock.now();
    const lastLines = await readLastLines(exit.containerId, this.deps, this.closing.signal);
    this.apply({ kind: 'exited', exit: { ...exit, lastLines } }, heardAt);
  }

  /** Does nothing more. Resolves when what was being written is on disk. */
  async close(): Promise<void> {
    this.closing.abort();
    this.timer?.cancel();
    this.preparing?.leave();
    this.readiness?.abort();
    this.probing?.abort();
    await this.writes.idle();
  }

  /** @param heardAt - When it happened, as far as is known here: pauses count from then. */
  private apply(event: ReplicaEvent, heardAt = this.deps.clock.now()): void {
    if (this.closing.signal.aborted) return;
    const before = this.state;
    const reduced: Reduced = reduceReplica(before, event);
    this.state = reduced.state;
    if (reduced.state === before && reduced.effects.length === 0) return;
    this.logChange(before, event);
    this.dropStale();
    for (const effect of reduced.effects) this.perform(effect, heardAt);
    this.leaveQueue();
    this.saveProgressSoon();
    this.deps.onChanged(this.state.replicaId);
  }

  /** Timers and checks belong to one activity. */
  private dropStale(): void {
    const { kind } = this.state.activity;
    if (kind !== 'backingOff' && kind !== 'leaving') this.timer?.cancel();
    if (kind !== 'starting') this.preparing?.leave();
    if (kind === 'running') return;
    this.readiness?.abort();
    this.probing?.abort();
  }

  private perform(effect: ReplicaEffect, heardAt = this.deps.clock.now()): void {
    switch (effect.kind) {
      case 'start':
        this.prepareAndStart(effect.containerId);
        return;
      case 'startAfter':
        this.after(heardAt + effect.delayMs - this.deps.clock.now(), () =>
          this.apply({ kind: 'startDue', newContainerId: this.newContainerId() }),
        );
        return;
      case 'terminateAfter':
        this.after(effect.delayMs, () => this.apply({ kind: 'stopDue' }));
        return;
      case 'awaitReady': {
        const { container, ports } = effect;
        const endpoints = container.endpoints.filter(({ portName }) => ports.includes(portName));
        this.readiness?.abort();
        this.readiness = new AbortController();
        awaitReady(endpoints, this.deps, this.readiness.signal).then(
          () => this.apply({ kind: 'accepted', containerId: container.id }),
          () => undefined, // stopped: the container has ended
        );
        return;
      }
      case 'probe':
        this.probe(effect.container, effect.wasReady);
        return;
      case 'terminate':
        void this.terminate(effect.containerId, effect.graceMs);
        return;
      case 'discard':
        void this.endStray(effect.containerId);
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

  private probe(container: CurrentContainer, wasReady: boolean): void {
    const { id: containerId } = container;
    const upMs = this.startedAt?.id === containerId ? this.deps.clock.now() - this.startedAt.at : 0;
    this.probing?.abort();
    this.probing = new AbortController();
    const listener: ProbeListener = {
      startedUp: () => this.apply({ kind: 'startedUp', containerId }),
      readiness: (ready, reason) => this.apply({ kind: 'probed', containerId, ready, reason }),
      unhealthy: (reason) => this.apply({ kind: 'unhealthy', containerId, reason }),
    };
    const plans = this.state.plan?.probes ?? {};
    void probeContainer(
      { plans, container, upMs, wasReady },
      listener,
      { ...this.deps, log: this.log },
      this.probing.signal,
    );
  }

  /** Images come before the turn: a registry that is slow holds up nobody else. */
  private prepareAndStart(containerId: ContainerId): void {
    if (this.state.plan?.image !== true) return this.startInTurn(containerId);
    const { restarts } = this.state;
    this.preparing = new ReplicaPreparation(this.startOrder, { containerId, restarts }, this.deps, {
      changed: (pull) => this.apply({ kind: 'pullChanged', containerId, pull }),
      done: () => this.startInTurn(containerId),
      failed: (reason, pull) => {
        // once, not with each try
        const level = this.state.reason.includes(errorMessageOf(reason)) ? 'debug' : 'warn';
        this.log[level]('container not prepared', { containerId, ...errorFields(reason) });
        const uncertain = this.tried === containerId;
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
    });
  }

  private startInTurn(containerId: ContainerId): void {
    this.turn = this.deps.starts.add(this.state.restarts > 0 ? 'restart' : 'first', () =>
      this.start(containerId),
    );
    if (this.turn.waits) this.apply({ kind: 'startQueued', containerId });
  }

  /**
   * A start that waits, for its image or its turn, is not wanted any more once the replica is to
   * stop.
   */
  private leaveQueue(): void {
    const { activity, stop } = this.state;
    if (stop === undefined || activity.kind !== 'starting') return;
    if (this.preparing?.leave() !== true && this.turn?.leave() !== true) return;
    const { containerId } = activity;
    // An earlier try with this id may have started it all the same.
    this.apply({
      kind: 'startFailed',
      containerId,
      reason: 'stopped before its turn',
      uncertain: this.tried === containerId,
    });
  }

  private async start(containerId: ContainerId): Promise<void> {
    const { activity } = this.state;
    // it was heard of meanwhile
    if (this.isOver || activity.kind !== 'starting' || activity.containerId !== containerId) return;
    const lease = this.lease.now();
    if (lease !== undefined && lease.leaseMs <= 0)
      return this.apply({ kind: 'outOfContact', containerId });
    this.lease.isGivenTo(containerId);
    const wasTried = this.tried === containerId;
    this.tried = containerId;
    try {
      const containerPlan = {
        containerId,
        restarts: this.state.restarts,
        ...(lease === undefined ? {} : { lease }),
      };
      const status = await startContainer(this.startOrder, containerPlan, this.deps);
      this.running(status);
      if (status.phase === 'exited') this.exited(status);
    } catch (reason) {
      this.log.warn('container not started', { containerId, ...errorFields(reason) });
      const unreachable = isUncertain(reason);
      const uncertain = unreachable || wasTried; // an earlier try may have started it all the same
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
   * A container that a start without an answer, or an earlier agent, has made after all: another
   * one stands for the replica by now.
   */
  private async endStray(containerId: ContainerId): Promise<void> {
    const { runtime } = this.deps;
    for (let failures = 0; !this.isOver; failures += 1) {
      try {
        await runtime.stop(containerId, 0);
        return await runtime.remove(containerId);
      } catch (reason) {
        if (errorKindOf(reason) === 'notFound') return;
        const level = failures === 0 ? 'warn' : 'debug'; // once, however long the runtime is away
        this.log[level]('container of a given up start not ended', {
          containerId,
          ...errorFields(reason),
        });
      }
      await this.pause();
    }
  }

  private async terminate(containerId: ContainerId, graceMs: number): Promise<void> {
    for (;;) {
      try {
        this.exited(await this.deps.runtime.stop(containerId, graceMs));
        return;
      } catch (reason) {
        if (this.closing.signal.aborted) return;
        if (errorKindOf(reason) === 'notFound') return this.lost(containerId);
        this.log.warn('container not stopped', { containerId, ...errorFields(reason) });
      }
      await this.pause();
      const { activity } = this.state;
      if (activity.kind === 'ended' || this.closing.signal.aborted) return;
    }
  }

  /** Removes every container of the replica, then what is kept of it. */
  private async forget(): Promise<void> {
    const { store, onForgotten } = this.deps;
    const { replicaId } = this.state;
    while (!this.closing.signal.aborted) {
      try {
        await removeContainers(replicaId, this.deps);
        await this.writes.run(async () => {
          await store.removeReplica(replicaId);
          this.closing.abort(); // before an order that waits could write it down again
          onForgotten(replicaId);
        });
        return;
      } catch (reason) {
        this.log.warn('replica not forgotten yet', errorFields(reason));
        await this.pause();
      }
    }
  }

  private isRepeat(order: Order): boolean {
    if (
      order.orderRevision !== this.state.heldRevision ||
      this.state.activity.kind === 'unconfirmed'
    )
      return false;
    // A stop and the forget after it may have the same revision, when nothing was committed in
    // between.
    if (order.order.case === 'forget') return this.state.forget;
    return order.order.case === 'start'
      ? this.orders.start !== undefined
      : this.orders.end !== undefined;
  }

  /**
   * Behind the events, at most one write waiting: only orders must be on disk before anything is
   * done.
   */
  private saveProgressSoon(): void {
    if (this.saveQueued || (this.orders.start === undefined && this.orders.end === undefined))
      return;
    this.saveQueued = true;
    void this.writes.run(async () => {
      this.saveQueued = false;
      const { state, orders } = this;
      const key = JSON.stringify(toStoredProgress(state));
      if (key === this.savedProgress || state.activity.kind === 'unconfirmed') return;
      if (isEnded(state.phase) && state.forget) return; // about to go
      try {
        await this.deps.store.saveReplica(toStoredReplica(state, orders));
        this.savedProgress = key;
      } catch (reason) {
        this.log.warn('progress not kept', errorFields(reason));
      }
    });
  }

  private noteStart(status: ContainerStatus): void {
    if (this.startedAt?.id !== status.containerId)
      this.startedAt = { id: status.containerId, at: this.deps.clock.now() };
  }

  private after(delayMs: number, action: () => void): void {
    this.timer?.cancel();
    this.timer = this.deps.clock.setTimer(delayMs, action);
  }

  private pause(): Promise<void> {
    return new Promise((resolve) => {
      this.deps.clock.setTimer(RUNTIME_RETRY_MS, resolve);
    });
  }

  private newContainerId(): ContainerId {
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
