import type { RoleChange } from '@cloudless/cluster-state';
import { findSeveralLeaders } from '../checks/leadership-checkers.js';
import { ElectedCoordinator } from '../parts/elected-coordinator.js';
import { SimLink } from '../parts/sim-link.js';
import { SimProcess } from '../parts/sim-process.js';
import { SimStore } from '../parts/sim-store.js';
import type { SimRandom } from '../parts/sim-random.js';
import {
  LEASE_MS,
  LEAVE_GRACE_MS,
  RESTART_MS,
  SERVICE_CIDR,
  type ControlPlane,
  type ControlPlaneDeps,
  type LeadingCoordinator,
} from './control-plane.js';

/** Several coordinators that share one store and elect their leader. */
export class CoordinatorGroup implements ControlPlane {
  readonly members: readonly GroupMember[];
  readonly store: SimStore;
  private pausedUntil = Number.NEGATIVE_INFINITY;

  constructor(private readonly deps: ControlPlaneDeps) {
    const { time, disk, log, plan } = deps;
    this.store = new SimStore(time, disk, log);
    const peerAt = (address: string): ElectedCoordinator | undefined => this.at(address);
    this.members = Array.from(
      { length: plan.coordinators },
      (_, index) => new GroupMember(`coordinator-${index + 1}`, deps, this.store, peerAt),
    );
  }

  get addresses(): readonly string[] {
    return this.members.map(({ address }) => address);
  }

  start(): void {
    for (const member of this.members) member.start();
  }

  at(address: string): ElectedCoordinator | undefined {
    return this.members.find((member) => member.address === address)?.serving;
  }

  get leader(): GroupMember | undefined {
    const leaders = this.members.filter(({ leadership }) => leadership !== undefined);
    const epochOf = ({ leadership }: GroupMember): number => Number(leadership?.state.epoch ?? 0n);
    return leaders.sort((a, b) => epochOf(b) - epochOf(a))[0];
  }

  get leading(): LeadingCoordinator | undefined {
    return this.leader?.leadership;
  }

  get leaderProcess(): SimProcess | undefined {
    return this.leader?.liveProcess;
  }

  get lastPause(): number {
    return this.members.some(({ isPaused }) => isPaused) ? this.deps.time.now() : this.pausedUntil;
  }

  observe(): void {
    for (const text of findSeveralLeaders(this.members)) this.deps.reportViolation(text);
    if (this.members.some(({ isPaused }) => isPaused)) this.pausedUntil = this.deps.time.now();
  }

  killLeader(restartAfterMs: number): boolean {
    return this.leader?.kill(restartAfterMs) === true;
  }

  killAll(restartAfterMs: number): void {
    for (const member of this.members) member.kill(restartAfterMs);
  }

  heal(): void {
    for (const member of this.members) member.heal();
  }
}

/** One coordinator of a group: its processes, one after the other, and its network. */
export class GroupMember {
  readonly address: string;
  /** The network between this coordinator and the store. */
  readonly storeLink: SimLink;
  /** Shortest and longest delay of the view of this coordinator, milliseconds. */
  viewDelayMs: readonly [number, number] = [0, 0];
  /** The network between this coordinator and the others that it calls. */
  readonly peerLink: SimLink | undefined;
  private readonly random: SimRandom;
  private coordinator: ElectedCoordinator | undefined;
  private process: SimProcess | undefined;
  private restartAfterMs: number | undefined;
  private incarnation = 0;

  constructor(
    readonly id: string,
    private readonly deps: ControlPlaneDeps,
    private readonly store: SimStore,
    private readonly peerAt: (address: string) => ElectedCoordinator | undefined,
  ) {
    this.address = `http://${id}`;
    this.random = deps.random.fork();
    this.storeLink = new SimLink(`${id} and the store`, deps.time, this.random.fork());
    // Only then, so that worlds without forwarding keep their random streams.
    if (deps.plan.forwards)
      this.peerLink = new SimLink(`${id} and other coordinators`, deps.time, this.random.fork());
  }

  /** The process, running or paused, if any. */
  get liveProcess(): SimProcess | undefined {
    return this.process?.isDead === true ? undefined : this.process;
  }

  /** The coordinator that accepts calls, as leader or follower. */
  get serving(): ElectedCoordinator | undefined {
    return this.coordinator?.process.isDead === true ? undefined : this.coordinator;
  }

  get leadership(): LeadingCoordinator | undefined {
    return this.serving?.leadership;
  }

  get isActing(): boolean {
    return this.process?.isRunning === true && this.leadership !== undefined;
  }

  get isPaused(): boolean {
    return this.process?.isRunning === false && !this.process.isDead;
  }

  /**
   * Kills the process; the next one starts after `restartAfterMs` virtual milliseconds.
   * @returns False when no process was running.
   */
  kill(restartAfterMs: number): boolean {
    const { liveProcess } = this;
    if (liveProcess === undefined) return false;
    this.restartAfterMs = restartAfterMs;
    liveProcess.kill();
    return true;
  }

  heal(): void {
    this.storeLink.heal();
    this.peerLink?.heal();
    this.viewDelayMs = [0, 0];
    this.process?.cancelCrash();
    this.process?.resume();
  }

  start(): void {
    const { time, log, injected, trace, drift, onCommit, reportViolation } = this.deps;
    const { id, address, store, storeLink, peerLink, peerAt, random } = this;
    const process = new SimProcess(`${id}#${(this.incarnation += 1)}`, time, drift(600_000));
    this.process = process;
    trace.add(id, 'starts');
    process.onDeath(() => {
      trace.add(id, 'is dead');
      const afterMs = this.restartAfterMs ?? random.between(...RESTART_MS);
      this.restartAfterMs = undefined;
      time.setTimer(afterMs, () => this.start());
    });
    const viewRandom = random.fork();
    ElectedCoordinator.start({
      ...{ id, address, process, store, storeLink, peerAt, log, time, onCommit, injected },
      linkTo: () => peerLink ?? storeLink,
      forwards: peerLink !== undefined,
      random: random.toPlainRandom(),
      leaseMs: LEASE_MS,
      leaveGraceMs: LEAVE_GRACE_MS,
      serviceCidr: this.deps.plan.services ? SERVICE_CIDR : undefined,
      watchDelayMs: () => (this.viewDelayMs[1] > 0 ? viewRandom.between(...this.viewDelayMs) : 0),
      onFault: (rpc, reason) =>
        reportViolation(`${rpc} failed with an internal error: ${String(reason)}`),
      onRoleChange: (change, coordinator) => this.recordRole(change, coordinator),
    }).then(
      (coordinator) => this.serve(coordinator),
      (reason: unknown) => {
        trace.add(id, `cannot start: ${String(reason)}`);
        process.kill();
      },
    );
  }

  private recordRole(change: RoleChange, coordinator: ElectedCoordinator): void {
    const text =
      change.role === 'leader'
        ? `leads with epoch ${change.term.epoch}`
        : `follows: ${describeCause(change.reason)}`;
    this.deps.trace.add(this.id, text);
    if (change.role === 'leader') this.deps.onServing(coordinator, change.term.epoch > 1n);
  }

  private serve(coordinator: ElectedCoordinator): void {
    if (coordinator.process.isDead) return;
    this.coordinator = coordinator;
    this.deps.trace.add(this.id, 'serves');
  }
}

function describeCause({ cause, message }: Error): string {
  return cause instanceof Error ? cause.message : message;
}
