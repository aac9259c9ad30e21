import { CloudlessError, type Clock, type Timer } from '@cloudless/base';
import type {
  ContainerEndpoint,
  ContainerLease,
  ContainerRequest,
  ContainerSignal,
  ContainerStatus,
} from '../container-runtime.js';
import { formatExitReason } from '../exit-reason.js';
import { LEASE_ENDED_REASON, LeaseTimer } from '../lease-timer.js';
import { parseBehaviour } from './fake-command.js';
import { FakeLog } from './fake-log.js';
import { FakeProcess, type FakeProcessHost } from './fake-process.js';

export interface FakeContainerDeps {
  readonly clock: Clock;
  readonly pid: number;
  readonly endpoints: readonly ContainerEndpoint[];
  readonly host: Pick<FakeProcessHost, 'waitForGate' | 'onChildStarted' | 'onChildEnded'>;
  /** Called once, after the status has changed to `exited`. */
  readonly onExit: (status: ContainerStatus) => void;
}

/** One container of a {@link FakeMachine}: a status, a log and a fake main process. */
export class FakeContainer {
  readonly log: FakeLog;
  /** Running commands, which are killed when the container exits. */
  readonly commands = new Set<FakeProcess>();
  private readonly main: FakeProcess;
  private current: ContainerStatus;
  private pendingKill: { readonly at: number; readonly timer: Timer } | undefined;
  private readonly stopWaiters: ((status: ContainerStatus) => void)[] = [];
  private endReason: string | undefined;
  private readonly lease: LeaseTimer;

  constructor(
    readonly request: ContainerRequest,
    private readonly deps: FakeContainerDeps,
  ) {
    const { clock, pid, endpoints, host } = deps;
    this.log = new FakeLog(clock);
    this.lease = new LeaseTimer(clock, (graceMs) => void this.stop(graceMs));
    const { containerId, labels } = request;
    this.current = {
      containerId,
      labels: { ...labels },
      phase: 'running',
      pid,
      startedAtMs: clock.wallTime(),
      endpoints,
    };
    this.main = new FakeProcess(parseBehaviour([...request.command, ...request.args]), {
      ...host,
      env: this.env,
      stdin: new Uint8Array(0),
      write: (stream, bytes) => this.log.write(stream, bytes),
      onExit: (exitCode, signal) => this.handleExit(exitCode, signal),
    });
  }

  get status(): ContainerStatus {
    return this.current;
  }

  /** True from the first stop of the main process on, also by the end of the lease. */
  get isStopping(): boolean {
    return this.pendingKill !== undefined;
  }

  /** Environment of processes: the variables of the request, and the first port as `PORT`. */
  get env(): Readonly<Record<string, string>> {
    const [first] = this.deps.endpoints;
    const { env, secretEnv } = this.request;
    return { ...env, ...secretEnv, ...(first === undefined ? {} : { PORT: String(first.port) }) };
  }

  /** Starts the main process and the lease. Call it once. */
  run(): void {
    if (this.request.lease !== undefined) this.lease.renew(this.request.lease);
    this.main.run();
  }

  /** Sends a signal to the main process, which handles only SIGTERM. */
  signal(signal: ContainerSignal): void {
    if (signal === 'SIGTERM') this.main.terminate();
  }

  renew(lease: ContainerLease | undefined): void {
    if (this.current.phase === 'running') this.lease.renew(lease);
  }

  stop(graceMs: number): Promise<ContainerStatus> {
    if (this.current.phase === 'exited') return Promise.resolve(this.current);
    return new Promise((resolve) => {
      this.stopWaiters.push(resolve);
      const at = this.deps.clock.now() + Math.max(0, graceMs);
      if (graceMs <= 0) return this.main.kill();
      const isFirstStop = this.pendingKill === undefined;
      if (this.pendingKill === undefined || at < this.pendingKill.at) {
        this.pendingKill?.timer.cancel();
        this.pendingKill = { at, timer: this.deps.clock.setTimer(graceMs, () => this.main.kill()) };
      }
      if (isFirstStop) this.main.terminate();
    });
  }

  /**
   * Makes the main process exit.
   * @param reason - Text for the status; by default it follows from the exit code.
   * @throws kind `precondition` when the process has exited.
   */
  end(exitCode: number, reason?: string): void {
    if (this.current.phase === 'exited')
      throw new CloudlessError('precondition', `container ${this.current.containerId} has ended`);
    this.endReason = reason;
    this.main.end(exitCode);
  }

  private handleExit(exitCode: number, signal?: string): void {
    this.pendingKill?.timer.cancel();
    this.lease.cancel();
    const { containerId, labels, startedAtMs, endpoints } = this.current;
    const leaseEnded = this.lease.hasEnded;
    const reason =
      this.endReason ?? (leaseEnded ? LEASE_ENDED_REASON : formatExitReason(exitCode, signal));
    const finishedAtMs = this.deps.clock.wallTime();
    const ended = {
      containerId,
      labels,
      phase: 'exited',
      startedAtMs,
      finishedAtMs,
      exitCode,
      reason,
      endpoints,
    } as const;
    this.current = leaseEnded ? { ...ended, leaseEnded } : ended;
    for (const command of this.commands) command.kill();
    this.log.end();
    this.deps.onExit(this.current);
    for (const resolve of this.stopWaiters.splice(0)) resolve(this.current);
  }
}
