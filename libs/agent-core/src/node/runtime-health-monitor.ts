import { sleep, type Clock, type Log } from '@cloudless/base';
import { HEALTHY, type ContainerRuntime } from '@cloudless/runtime';
import type { NodeReplicas } from '../replica/node-replicas.js';
import type { ConditionReading } from './node-monitor.js';

/**
 * Time between two reads of the runtime's health. Reads may be frequent: a read makes no call to
 * the container runtime.
 */
export const HEALTH_INTERVAL_MS = 1_000;
/**
 * A restarted container runtime answers again within this time; after this time, the node reports
 * CONTAINER_RUNTIME_UNAVAILABLE and gets no new containers.
 */
export const UNAVAILABLE_AFTER_MS = 5_000;
/**
 * After this time, the agent gives up starts that have not succeeded, and the coordinator places
 * the replicas elsewhere. Later than {@link UNAVAILABLE_AFTER_MS}, so that the coordinator excludes
 * this node before it places the replicas.
 */
export const GIVE_UP_AFTER_MS = 10_000;

export interface RuntimeHealthMonitorOptions {
  readonly runtime: Pick<ContainerRuntime, 'health'>;
  readonly replicas: Pick<NodeReplicas, 'listRunners'>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Monitors the health of the container runtime. While the runtime does not answer, reports a node
 * condition and gives up starts that have not succeeded. Marks containers without their main
 * process as not ready. Never stops a running container.
 */
export class RuntimeHealthMonitor {
  private isUnavailable = false;
  /**
   * Containers without a main process at the previous read. Only a container that still has none at
   * the next read is marked, so that the runtime has one more interval to report the exit.
   */
  private suspected: ReadonlySet<string> = new Set();

  constructor(private readonly options: RuntimeHealthMonitorOptions) {}

  /** CONTAINER_RUNTIME_UNAVAILABLE as of the newest read. */
  get condition(): ConditionReading {
    const reason = this.isUnavailable
      ? `the container runtime has not answered for ${UNAVAILABLE_AFTER_MS / 1_000} s`
      : '';
    return { status: this.isUnavailable, reason };
  }

  /**
   * Reads the health of the runtime, updates the condition and the replicas.
   * @returns True when the condition has changed.
   */
  refresh(): boolean {
    const { runtime, replicas, log } = this.options;
    const { containersSilentMs, withoutProcess } = runtime.health?.() ?? HEALTHY;
    const wasUnavailable = this.isUnavailable;
    this.isUnavailable = containersSilentMs >= UNAVAILABLE_AFTER_MS;
    if (this.isUnavailable && !wasUnavailable)
      log.warn('container runtime does not answer: this node takes no new containers', {
        containersSilentMs,
      });
    if (wasUnavailable && !this.isUnavailable) log.info('container runtime answers again');
    const containersWithoutProcess = new Set(
      withoutProcess.filter((containerId) => this.suspected.has(containerId)),
    );
    this.suspected = new Set(withoutProcess);
    for (const runner of replicas.listRunners()) {
      if (containersWithoutProcess.size > 0) runner.markProcessGone(containersWithoutProcess);
      if (containersSilentMs >= GIVE_UP_AFTER_MS) runner.giveUpStart();
    }
    return this.isUnavailable !== wasUnavailable;
  }

  /**
   * Reads the health every second until `signal` is aborted.
   * @param onConditionChange - Called as soon as the condition has changed.
   */
  async run(onConditionChange: () => void, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.options.clock, HEALTH_INTERVAL_MS, signal).catch(() => undefined);
      if (!signal.aborted && this.refresh()) onConditionChange();
    }
  }
}
