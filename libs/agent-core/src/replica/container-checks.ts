import type { ContainerId, Log } from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import { waitForPorts } from '../container/wait-for-ports.js';
import { probeContainer, type ProbeListener } from '../probes/probe-container.js';
import type { ReplicaHost } from './replica-host.js';
import type { ReplicaRunnerDeps } from './replica-runner-deps.js';
import type { CurrentContainer } from './replica-state.js';

/** Readiness checks and probes of the running container of one replica. */
export class ContainerChecks {
  private portChecks: AbortController | undefined;
  private probes: AbortController | undefined;
  /** Start time of the newest container on the monotonic clock. */
  private newestStart: { readonly id: ContainerId; readonly at: number } | undefined;

  constructor(
    private readonly host: ReplicaHost,
    private readonly deps: ReplicaRunnerDeps,
    private readonly log: Log,
  ) {
    this.recordRestored();
  }

  /** Records the start of an adopted container: only its start time on the wall clock is known. */
  recordRestored(): void {
    const { container } = this.host.current;
    if (container === undefined) return;
    const ageMs = Math.max(0, this.deps.clock.wallTime() - container.startedAtMs);
    this.newestStart = { id: container.id, at: this.deps.clock.now() - ageMs };
  }

  /** Records the start of a container. */
  recordStart({ containerId }: ContainerStatus): void {
    if (this.newestStart?.id !== containerId)
      this.newestStart = { id: containerId, at: this.deps.clock.now() };
  }

  /** Running time of a container, milliseconds; 0 when its start is not known. */
  upMs(containerId: ContainerId): number {
    return this.newestStart?.id === containerId ? this.deps.clock.now() - this.newestStart.at : 0;
  }

  /**
   * Connects to TCP ports of a container until all accept connections.
   * @param ports - Names of the ports.
   */
  awaitPorts({ id, endpoints }: CurrentContainer, ports: readonly string[]): void {
    this.portChecks?.abort();
    this.portChecks = new AbortController();
    const awaitedEndpoints = endpoints.filter(({ portName }) => ports.includes(portName));
    waitForPorts(awaitedEndpoints, this.deps, this.portChecks.signal).then(
      () => this.host.apply({ kind: 'accepted', containerId: id }),
      () => undefined, // aborted: the container has exited
    );
  }

  /**
   * Runs the probes of a container.
   * @param wasReady - True when the container was ready before a restart of the agent.
   */
  startProbes(container: CurrentContainer, wasReady: boolean): void {
    const { id: containerId } = container;
    this.probes?.abort();
    this.probes = new AbortController();
    const listener: ProbeListener = {
      onStartupPassed: () => this.host.apply({ kind: 'startedUp', containerId }),
      onReadiness: (ready, reason) =>
        this.host.apply({ kind: 'probed', containerId, ready, reason }),
      onUnhealthy: (reason) => this.host.apply({ kind: 'unhealthy', containerId, reason }),
    };
    const schedules = this.host.current.target?.probes ?? {};
    void probeContainer(
      { schedules, container, upMs: this.upMs(containerId), wasReady },
      listener,
      { ...this.deps, log: this.log },
      this.probes.signal,
    );
  }

  /** Ends all checks. */
  cancel(): void {
    this.portChecks?.abort();
    this.probes?.abort();
  }
}
