import { silentLog, type Log } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { COMMIT_CHECKERS } from '../checks/commit-checkers.js';
import { ROLLOUT_CHECKERS } from '../checks/rollout-checkers.js';
import { ContainerChecker } from '../checks/container-checker.js';
import { ReconnectStormChecker } from '../checks/reconnect-storm-checker.js';
import { ApiHistory } from '../checks/api-history.js';
import { AcknowledgementChecker } from '../checks/acknowledgement-checker.js';
import { createLeadershipChecker } from '../checks/leadership-checkers.js';
import { createLossCheckers } from '../checks/false-losses.js';
import { StoreWatcher, WorkloadWatcher } from '../checks/watch-checker.js';
import { findRolloutsInProgress, findUnfinishedRollouts } from '../checks/rollout-progress.js';
import { findDifferences, findReservationMismatches } from '../checks/convergence.js';
import {
  FIRST_SEED_OF_GROUPS,
  planGroupWorld,
  planWorld,
  type FaultKind,
  type WorldPlan,
} from '../faults/fault-plan.js';
import { injectFault } from '../faults/faults.js';
import { DurableRecords } from '../parts/durable-records.js';
import { SimDisk } from '../parts/sim-disk.js';
import { SimLink } from '../parts/sim-link.js';
import { SimLinkGroup } from '../parts/sim-link-group.js';
import { SimNode } from '../parts/sim-node.js';
import type { ServingCoordinator } from '../parts/serving-coordinator.js';
import type { Drift, SimProcess } from '../parts/sim-process.js';
import { SimRandom } from '../parts/sim-random.js';
import { SimReplicas } from '../parts/sim-replicas.js';
import { SimUser } from '../parts/sim-user.js';
import { CoordinatorGroup } from './coordinator-group.js';
import { CommitMonitor } from './commit-monitor.js';
import {
  LEASE_MS,
  LEAVE_GRACE_MS,
  RESTART_MS,
  type ControlPlane,
  type ControlPlaneDeps,
} from './control-plane.js';
import { compareContainers, describeContainers } from './container-snapshot.js';
import type { SimClusterOptions, SimOutcome } from './sim-outcome.js';
import { SingleCoordinator } from './single-coordinator.js';
import { NetworkPart } from './network-part.js';
import { SimOperator } from './sim-operator.js';
import { Trace } from './trace.js';

export type { SimClusterOptions, SimOutcome } from './sim-outcome.js';

/**
 * Fewest nodes of a world with host ports. After a quarter of the nodes is destroyed, one node is
 * left for each of two replicas and their two replacements.
 */
const NODES_FOR_HOST_PORTS = 5;
/** Largest duration until convergence after all faults have ended, milliseconds. */
const CONVERGE_MS = 60_000;
/** Pause between two checks for convergence, milliseconds. */
const CHECK_MS = 250;
/** Pause between two checks for the end of a user call, milliseconds. */
const CALL_CHECK_MS = 20;
/**
 * Duration for which nothing may change after every process of a converged world was restarted,
 * milliseconds.
 */
const QUIET_MS = LEASE_MS + 2_000;
/** Shortest and longest time until a long dead process is started again, milliseconds. */
const LONG_RESTART_MS: readonly [number, number] = [2_000, 6_000];
/** Only the first violations are kept, because one violation causes others. */
const MAX_VIOLATIONS = 5;

/**
 * A whole cluster on virtual time: the real coordinator and real agents, joined by a simulated
 * network, on disks and machines that outlive these processes. The seed determines everything that
 * happens.
 */
export class SimCluster {
  readonly time = new ManualClock();
  readonly trace: Trace;
  readonly violations: string[] = [];
  readonly plan: WorldPlan;
  readonly disk: SimDisk;
  readonly records = new DurableRecords();
  readonly nodes: SimNode[] = [];
  readonly users: SimUser[] = [];
  readonly userLinks: SimLink[] = [];
  readonly replicas: SimReplicas;
  readonly containers: ContainerChecker;
  readonly acknowledgements: AcknowledgementChecker;
  private readonly history = new ApiHistory();
  private readonly reconnectStorms: ReconnectStormChecker;
  /** Shortest and longest delay of the coordinator's view, milliseconds. */
  viewDelayMs: readonly [number, number] = [0, 0];
  private readonly random: SimRandom;
  private readonly log: Log;
  readonly coordinators: ControlPlane;
  private inTurmoil = true;
  private diskFullUntil = Number.NEGATIVE_INFINITY;
  private readonly commits: CommitMonitor;
  private readonly storeWatcher: StoreWatcher;
  private readonly workloadWatcher: WorkloadWatcher;
  private readonly operator: SimOperator;
  /** The proxies, in a world with services. */
  private readonly network: NetworkPart | undefined;

  constructor(private readonly options: SimClusterOptions) {
    const { seed } = options;
    this.trace = new Trace(() => this.time.now(), options.onLine);
    this.random = new SimRandom(seed);
    const drawn =
      seed >= FIRST_SEED_OF_GROUPS
        ? planGroupWorld(this.random.fork())
        : planWorld(this.random.fork());
    // Derived from the seed instead of drawn, so that worlds without them keep their random streams.
    const hostPorts = seed % 3 === 0 && drawn.nodes >= NODES_FOR_HOST_PORTS;
    this.plan =
      options.plan === undefined
        ? { ...drawn, hostPorts, services: seed % 5 === 0 }
        : { ...drawn, ...options.plan };
    this.log = options.log ?? silentLog;
    const violation = (text: string): void => this.reportViolation(text);
    this.disk = new SimDisk(this.time, this.random.fork(), this.plan.historyLimit, (transactions) =>
      this.commits.add(transactions),
    );
    this.containers = new ContainerChecker({
      records: this.records,
      now: () => this.time.now(),
      schedule: (delayMs, action) => this.later(delayMs, action),
      reportViolation: violation,
    });
    this.replicas = new SimReplicas(this.time, this.random.fork(), () =>
      this.containers.runningContainers(),
    );
    this.acknowledgements = new AcknowledgementChecker(this.records, violation);
    const countLiving = (): number => this.nodes.filter(({ isDestroyed }) => !isDestroyed).length;
    this.reconnectStorms = new ReconnectStormChecker({
      now: () => this.time.now(),
      nodes: countLiving,
      reportViolation: violation,
    });
    this.commits = new CommitMonitor({
      records: this.records,
      trace: this.trace,
      containers: this.containers,
      acknowledgements: this.acknowledgements,
      checkers: [
        ...COMMIT_CHECKERS,
        ...ROLLOUT_CHECKERS,
        ...createLossCheckers(this, LEASE_MS, LEAVE_GRACE_MS),
        ...(this.plan.coordinators > 1 ? [createLeadershipChecker()] : []),
      ],
      checkNetwork: (commit, revision) => this.network?.checkCommit(commit, revision),
      reportViolation: violation,
    });
    this.operator = new SimOperator(this.records, () => this.users[0]);
    const controlPlaneDeps: ControlPlaneDeps = {
      ...{ time: this.time, random: this.random, disk: this.disk, log: this.log },
      ...{ plan: this.plan, trace: this.trace, injected: options.injected },
      drift: (maxOffsetMs) => this.drift(maxOffsetMs),
      viewDelayMs: () => this.viewDelayMs,
      onCommit: (revision, nodeFacts) => this.commits.recordNodeFacts(revision, nodeFacts),
      reportViolation: violation,
      onServing: (coordinator, isRestart) => this.onServing(coordinator, isRestart),
    };
    this.coordinators =
      this.plan.coordinators > 1
        ? new CoordinatorGroup(controlPlaneDeps)
        : new SingleCoordinator(controlPlaneDeps);
    this.network = this.plan.services ? this.createNetwork() : undefined;
    const watcherDeps = {
      time: this.time,
      random: this.random.fork(),
      disk: this.disk,
      reportViolation: violation,
    };
    this.storeWatcher = new StoreWatcher({
      ...watcherDeps,
      trace: (text) => this.trace.add('watcher', text),
    });
    this.workloadWatcher = new WorkloadWatcher(watcherDeps);
  }

  get coordinatorProcess(): SimProcess | undefined {
    return this.coordinators.leaderProcess;
  }

  /** The coordinators, in a world with several. */
  get group(): CoordinatorGroup | undefined {
    return this.coordinators instanceof CoordinatorGroup ? this.coordinators : undefined;
  }

  /** Time of the world at which a coordinator was last paused, milliseconds. */
  get lastPause(): number {
    return this.coordinators.lastPause;
  }

  /**
   * Runs the world from beginning to end: faults and user calls, the end of all faults,
   * convergence, and a restart of every process.
   */
  async run(): Promise<SimOutcome> {
    const { plan } = this;
    await this.start();
    for (const user of this.users) user.start();
    this.scheduleFault();
    await this.advance(plan.turmoilMs);
    const convergedMs = this.isBroken ? undefined : await this.healAndConverge();
    if (convergedMs !== undefined) await this.checkRestartChangesNothing();
    if (!this.isBroken) for (const text of this.history.check()) this.reportViolation(text);
    return {
      seed: this.options.seed,
      violations: this.violations,
      trace: this.trace.lines,
      convergedMs,
      commits: this.commits.count,
      acknowledged: this.acknowledgements.acknowledged,
    };
  }

  /**
   * Starts the processes. Use this with {@link call} and {@link settle} instead of {@link run} when
   * a test makes the user calls.
   */
  async start(): Promise<void> {
    const { plan } = this;
    this.coordinators.start();
    for (let count = 0; count < plan.nodes; count += 1) this.addNode();
    for (let count = 0; count < plan.users; count += 1) this.addUser(`user-${count + 1}`);
    await this.advance(300);
  }

  /**
   * Makes a user call and waits for its outcome.
   * @param description - Its first word names the call, for example `scale one to 3`.
   */
  async call(description: string, call: Parameters<SimUser['perform']>[1]): Promise<void> {
    let isDone = false;
    void this.users[0]?.perform(description, call).finally(() => (isDone = true));
    while (!isDone && !this.isBroken) await this.advance(CALL_CHECK_MS);
  }

  /** Performs the user action that each stopped rollout needs until the cluster has converged. */
  settle(): Promise<void> {
    for (const user of this.users) user.finish();
    return this.settleRollouts('8: not converged', false);
  }

  /** Lets time pass and runs all checkers after each event. Ends early after a violation. */
  async advance(durationMs: number): Promise<void> {
    const until = this.time.now() + durationMs;
    await settle();
    this.runCheckers();
    while (!this.isBroken && (await this.time.step(until))) this.runCheckers();
    if (!this.isBroken) await this.time.advance(until - this.time.now());
  }

  /** Runs an action after a virtual delay. */
  later(delayMs: number, action: () => void): void {
    this.time.setTimer(delayMs, action);
  }

  /** Records a violation; repeated ones and those after the first few are dropped. */
  reportViolation(text: string): void {
    if (this.violations.length >= MAX_VIOLATIONS || this.violations.includes(text)) return;
    this.violations.push(text);
    this.trace.add('VIOLATION', text);
  }

  /** Adds a machine with an agent. */
  addNode(): SimNode {
    const { random, time, plan, log, options } = this;
    const number = this.nodes.length + 1;
    const id = `node-${number}`;
    const { addresses } = this.coordinators;
    const link =
      addresses.length > 1
        ? new SimLinkGroup(id, time, random.fork(), addresses)
        : new SimLink(id, time, random.fork());
    const { injected = {} } = options;
    const node = new SimNode({
      id,
      zone: `zone-${number % 3}`,
      cpuMillis: plan.cpuMillis,
      runsImages: plan.hostPorts,
      hasProxy: plan.services,
      drift: this.drift(3_600_000),
      time,
      link,
      random: random.fork(),
      log,
      addresses: this.coordinators.addresses,
      coordinator: (address) => this.coordinators.at(address),
      onMessage: (direction, message) => this.commits.recordMessage(id, direction, message),
      observer: {
        onContainerEvent: (simNode, event) => {
          const { status } = event;
          const change = event.kind === 'started' ? 'begins' : `ends: ${status.reason ?? ''}`;
          this.trace.add(
            id,
            `container ${status.containerId.slice(0, 8)} of ${status.labels['cloudless.replica'] ?? '?'} ${change}`,
          );
          this.network?.onContainerEvent(event);
          this.containers.onContainerEvent(simNode, event);
          this.replicas.observe(simNode, event);
        },
        onAgentStart: (simNode) => {
          this.trace.add(id, 'agent starts');
          this.containers.onAgentStart(simNode);
        },
        onDial: (simNode) => this.reconnectStorms.onDial(simNode.id),
        onContainerStart: (simNode, request) => this.containers.onContainerStart(simNode, request),
        onContainerStop: (simNode, containerId) => {
          this.network?.onContainerStop(containerId);
          this.containers.onContainerStop(simNode, containerId);
        },
        onMachineEnd: (simNode) => this.network?.onMachineEnd(simNode),
        onSave: (simNode, replicaId, stored) => this.containers.onSave(simNode, replicaId, stored),
        onStopMarked: (simNode, replicaId) => this.containers.onStopMarked(simNode, replicaId),
        onStartFailure: (simNode, replicaId) => this.containers.onStartFailure(simNode, replicaId),
      },
      acceptsConnections: (simNode, port) => this.replicas.acceptsConnections(simNode, port),
      wrapStore: injected.agentStore,
      wrapRuntime: injected.runtime,
      wrapClock: injected.agentClock,
      wrapConnection: injected.connection,
      wrapTransport: injected.transport,
    });
    this.nodes.push(node);
    this.startAgent(node);
    this.network?.addNode(node);
    return node;
  }

  /**
   * Kills the coordinator; a new one starts after `restartAfterMs` virtual milliseconds.
   * @returns False when no coordinator was running.
   */
  killCoordinator(restartAfterMs: number): boolean {
    return this.coordinators.killLeader(restartAfterMs);
  }

  /** Frees space on the coordinator's disk. */
  freeDiskSpace(): void {
    if (this.disk.full) this.diskFullUntil = this.time.now();
    this.disk.full = false;
  }

  private get isBroken(): boolean {
    return this.violations.length > 0;
  }

  private addUser(name: string): void {
    const { time, random, acknowledgements } = this;
    const link = new SimLink(name, time, random.fork());
    this.userLinks.push(link);
    this.users.push(
      new SimUser({
        name,
        time,
        random: random.fork(),
        link,
        addresses: this.coordinators.addresses,
        coordinator: (address) => this.coordinators.at(address),
        ledger: acknowledgements,
        history: this.history,
        nodeIds: () => this.nodes.map(({ id }) => id),
        hostPorts: this.plan.hostPorts,
        exclusive: this.plan.exclusive,
        services: this.plan.services,
        readsFollowers: this.plan.forwards,
        trace: (text) => this.trace.add(name, text),
        reportViolation: (text) => this.reportViolation(text),
        diskIsFull: () => this.disk.full || this.time.now() - this.diskFullUntil < 10_000,
      }),
    );
  }

  private createNetwork(): NetworkPart {
    const { time, random, log, coordinators, options } = this;
    return new NetworkPart({
      ...{ time, random: random.fork(), log, coordinators, injected: options.injected },
      drift: () => this.drift(3_600_000),
      trace: (source, text) => this.trace.add(source, text),
      reportViolation: (text) => this.reportViolation(text),
    });
  }

  private drift(maxOffsetMs: number): Drift {
    if (!this.plan.drift) return { rate: 1, offsetMs: 0 };
    return {
      rate: this.random.between(0.9, 1.1),
      offsetMs: Math.round(this.random.between(-maxOffsetMs, maxOffsetMs)),
    };
  }

  private onServing(coordinator: ServingCoordinator, isRestart: boolean): void {
    if (isRestart) this.reconnectStorms.onCoordinatorReturn();
    const { engine, process } = coordinator;
    if (engine !== undefined) void this.storeWatcher.follow({ engine, process });
    void this.workloadWatcher.follow(coordinator);
  }

  private startAgent(node: SimNode): void {
    const processOf = (): SimProcess | undefined => node.agentProcess;
    if (processOf() !== undefined) return;
    node.startAgent().catch((reason: unknown) => {
      this.trace.add(node.id, `agent cannot start: ${String(reason)}`);
      node.killAgent();
    });
    processOf()?.onDeath(() => {
      this.trace.add(node.id, 'agent is dead');
      const isLong = this.inTurmoil && this.random.chance(0.2);
      const restartMs = this.random.between(...(isLong ? LONG_RESTART_MS : RESTART_MS));
      const absenceMs = node.takeAbsenceMs();
      this.later(this.inTurmoil ? (absenceMs ?? restartMs) : restartMs, () =>
        this.startAgent(node),
      );
    });
  }

  private scheduleFault(): void {
    const { random, plan } = this;
    const kinds = plan.weights as Readonly<Record<FaultKind, number>>;
    if (Object.keys(kinds).length === 0) return;
    this.later(random.between(...plan.pauseMs), () => {
      if (!this.inTurmoil) return;
      const description = injectFault(this, random.pickWeighted(kinds), random);
      if (description !== undefined) this.trace.add('fault', description);
      this.scheduleFault();
    });
  }

  /** Applies committed transactions to the records and runs every checker on each. */
  private runCheckers(): void {
    this.coordinators.observe();
    this.commits.check();
    this.acknowledgements.check();
  }

  /**
   * Ends every fault, then waits for convergence.
   * @returns The duration in milliseconds, or undefined without convergence.
   */
  private async healAndConverge(): Promise<number | undefined> {
    this.heal();
    const startedAt = this.time.now();
    for (const { id, isDestroyed } of this.nodes) if (!isDestroyed) this.operator.uncordon(id);
    await this.converge(startedAt, '11: a rollout has not ended', () =>
      findRolloutsInProgress(this.records),
    );
    this.replicas.repairVersions();
    const destroyed = this.nodes.filter(({ isDestroyed }) => isDestroyed);
    if (destroyed.length > 0) {
      // Invariant 11: no rollout waits for a destroyed machine, even before the machine is removed.
      const names = destroyed.map(({ id }) => id).join(', ');
      await this.settleRollouts(`11: not converged with ${names} destroyed`, true);
      for (const { id } of destroyed) this.operator.removeNode(id);
    }
    await this.settleRollouts('8: not converged', false);
    return this.isBroken ? undefined : this.time.now() - startedAt;
  }

  /**
   * Performs the user action that each stopped rollout needs, until the cluster has converged.
   * @param violation - Beginning of the violation when the cluster does not converge in time.
   */
  private settleRollouts(violation: string, destroyedNodesAreRegistered: boolean): Promise<void> {
    return this.converge(this.time.now(), violation, () => {
      if (!this.operator.isBusy) this.operator.resolveStoppedRollouts();
      return [
        ...this.findDifferences(destroyedNodesAreRegistered),
        ...findUnfinishedRollouts(this.records),
      ];
    });
  }

  /**
   * Waits until `findProblems` returns an empty list.
   * @param startedAt - Start of the 60 s within which that must happen.
   * @param violation - Beginning of the violation when it does not happen in time.
   */
  private async converge(
    startedAt: number,
    violation: string,
    findProblems: () => readonly string[],
  ): Promise<void> {
    while (!this.isBroken) {
      const problems = findProblems();
      if (problems.length === 0) return;
      if (this.time.now() - startedAt >= CONVERGE_MS) {
        for (const problem of problems)
          this.reportViolation(
            `${violation} ${CONVERGE_MS / 1_000} s after all faults ended: ${problem}`,
          );
        return;
      }
      await this.advance(CHECK_MS);
    }
  }

  /** Ends every fault, and restarts the processes that are dead. */
  private heal(): void {
    this.trace.add('fault', 'everything heals');
    this.inTurmoil = false;
    for (const user of this.users) user.finish();
    this.freeDiskSpace();
    this.disk.delayMs = [0, 0];
    this.viewDelayMs = [0, 0];
    this.replicas.heal();
    for (const link of this.userLinks) link.heal();
    for (const node of this.nodes) {
      if (node.isDestroyed) continue;
      node.link.heal();
      node.storeMs = [0, 2];
      node.storeIsFull = false;
      node.agentProcess?.cancelCrash();
      node.resumeAgent();
      this.startAgent(node);
    }
    this.coordinators.heal();
    this.network?.heal();
  }

  /** Returns the current differences between desired and observed state. */
  private findDifferences(destroyedNodesAreRegistered: boolean): readonly string[] {
    const { records, containers, nodes } = this;
    const { leading } = this.coordinators;
    if (leading === undefined) return ['no coordinator serves'];
    const unfinished =
      this.operator.isBusy || this.users.some(({ isDone }) => !isDone)
        ? ['a user still waits for an outcome']
        : [];
    const disconnected = nodes.flatMap(({ id, isDestroyed }) =>
      isDestroyed || leading.controllers.nodes.isAlive(id) ? [] : [`${id} is not connected`],
    );
    const view = this.workloadWatcher.view;
    const outdated = [...records.workloads()].flatMap(({ value: { uid, name, generation } }) =>
      view?.get(uid) === generation
        ? []
        : [`a watch shows generation ${view?.get(uid)} of ${name}, not ${generation}`],
    );
    return [
      ...unfinished,
      ...disconnected,
      ...outdated,
      ...findDifferences({
        records,
        running: containers.runningContainers(),
        nodes,
        destroyedNodesAreRegistered,
      }),
      ...findReservationMismatches(leading),
      ...(this.network?.findDifferences() ?? []),
    ];
  }

  /** Invariants 15 and 17: in a converged cluster a restart of every process changes nothing. */
  private async checkRestartChangesNothing(): Promise<void> {
    const before = describeContainers(this.containers, this.records);
    this.trace.add('fault', 'all is well; every process is restarted');
    const restartMs = this.random.between(50, LEASE_MS * 0.5);
    const order = this.random.wholeNumber(0, 2);
    if (order !== 1) this.coordinators.killAll(restartMs);
    for (const node of this.nodes) if (this.random.chance(0.7)) node.killAgent();
    await this.advance(this.random.between(0, 400));
    if (order === 1) this.coordinators.killAll(restartMs);
    await this.advance(QUIET_MS);
    if (this.isBroken) return;
    const after = describeContainers(this.containers, this.records);
    for (const text of compareContainers(before, after)) this.reportViolation(`17: ${text}`);
  }
}
