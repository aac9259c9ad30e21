import { SimCoordinator } from '../parts/sim-coordinator.js';
import { SimProcess } from '../parts/sim-process.js';
import {
  LEASE_MS,
  LEAVE_GRACE_MS,
  RESTART_MS,
  SERVICE_CIDR,
  type ControlPlane,
  type ControlPlaneDeps,
} from './control-plane.js';

const ADDRESS = 'http://coordinator';

/** One coordinator with its own disk: when the process dies, a new one starts on that disk. */
export class SingleCoordinator implements ControlPlane {
  readonly addresses = [ADDRESS];
  private coordinator: SimCoordinator | undefined;
  private process: SimProcess | undefined;
  private restartAfterMs: number | undefined;
  private incarnation = 0;
  private pausedUntil = Number.NEGATIVE_INFINITY;

  constructor(private readonly deps: ControlPlaneDeps) {}

  get leaderProcess(): SimProcess | undefined {
    return this.process?.isDead === true ? undefined : this.process;
  }

  get leading(): SimCoordinator | undefined {
    return this.coordinator?.process.isDead === true ? undefined : this.coordinator;
  }

  get lastPause(): number {
    return this.isPaused ? this.deps.time.now() : this.pausedUntil;
  }

  at(_address: string): SimCoordinator | undefined {
    return this.leading;
  }

  observe(): void {
    if (this.isPaused) this.pausedUntil = this.deps.time.now();
  }

  killLeader(restartAfterMs: number): boolean {
    const process = this.leaderProcess;
    if (process === undefined) return false;
    this.restartAfterMs = restartAfterMs;
    process.kill();
    return true;
  }

  killAll(restartAfterMs: number): void {
    this.killLeader(restartAfterMs);
  }

  heal(): void {
    this.process?.cancelCrash();
    this.process?.resume();
  }

  start(): void {
    const { time, random, disk, log, injected, trace, viewDelayMs } = this.deps;
    const process = new SimProcess(
      `coordinator#${(this.incarnation += 1)}`,
      time,
      this.deps.drift(600_000),
    );
    this.process = process;
    trace.add('coordinator', 'starts');
    process.onDeath(() => {
      trace.add('coordinator', 'is dead');
      const afterMs = this.restartAfterMs ?? random.between(...RESTART_MS);
      this.restartAfterMs = undefined;
      time.setTimer(afterMs, () => this.start());
    });
    const viewRandom = random.fork();
    SimCoordinator.start({
      process,
      disk,
      random: random.toPlainRandom(),
      log,
      leaseMs: LEASE_MS,
      leaveGraceMs: LEAVE_GRACE_MS,
      serviceCidr: this.deps.plan.services ? SERVICE_CIDR : undefined,
      time,
      watchDelayMs: () => (viewDelayMs()[1] > 0 ? viewRandom.between(...viewDelayMs()) : 0),
      onCommit: this.deps.onCommit,
      onFault: (rpc, reason) =>
        this.deps.reportViolation(`${rpc} failed with an internal error: ${String(reason)}`),
      wrapStore: injected?.store,
      wrapClock: injected?.coordinatorClock,
      wrapState: injected?.state,
      wrapControllers: injected?.controllers,
    }).then(
      (coordinator) => this.serve(coordinator),
      (reason: unknown) => {
        trace.add('coordinator', `cannot start: ${String(reason)}`);
        process.kill();
      },
    );
  }

  private get isPaused(): boolean {
    return this.process?.isRunning === false && !this.process.isDead;
  }

  private serve(coordinator: SimCoordinator): void {
    if (coordinator.process.isDead) return;
    this.coordinator = coordinator;
    this.deps.trace.add('coordinator', `serves with epoch ${coordinator.state.epoch}`);
    this.deps.onServing(coordinator, this.incarnation > 1);
  }
}
