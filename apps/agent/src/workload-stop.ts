import type { Agent } from '@cloudless/agent-core';
import type { AgentRuntimes } from './runtimes/agent-runtimes.js';

/**
 * The stop of the workloads at the end of an agent, if the configuration wants it. Records why
 * workloads run on.
 */
export class WorkloadStop {
  private failure: unknown;
  private machineStops = false;

  /**
   * @param isWanted - True for an agent with `--stop-workloads-on-exit`.
   * @param isMachineShuttingDown - True when the machine ends what could not be stopped.
   */
  constructor(
    private readonly isWanted: boolean,
    private readonly isMachineShuttingDown: () => Promise<boolean>,
  ) {}

  /** True unless workloads run on, as far as it is known yet. */
  get stopsWorkloads(): boolean {
    return this.isWanted && this.failure === undefined;
  }

  /** @throws the errors of {@link Agent.stop}. */
  async stopAgent(agent: Pick<Agent, 'stop'>): Promise<void> {
    this.machineStops = await this.isMachineShuttingDown();
    const { isWanted: stopWorkloads, machineStops } = this;
    await this.record(agent.stop({ stopWorkloads, machineStops }));
  }

  /**
   * @param hasStarted - False after a failed start, which stops no workload.
   * @throws the errors of {@link AgentRuntimes.close}.
   */
  async closeRuntimes(runtimes: Pick<AgentRuntimes, 'close'>, hasStarted: boolean): Promise<void> {
    await this.record(runtimes.close(this.isWanted && hasStarted));
  }

  /** @throws the first failure, when the configuration wants the stop and the machine runs on. */
  throwFailure(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  private async record(step: Promise<void>): Promise<void> {
    try {
      await step;
    } catch (reason) {
      if (this.isWanted && !this.machineStops) this.failure ??= reason;
      throw reason;
    }
  }
}
