import { sleep, type Clock, type Log } from '@cloudless/base';
import {
  HEALTHY,
  listAvailable,
  type ContainerKind,
  type ContainerRuntime,
  type RuntimeHealth,
} from '@cloudless/runtime';
import type { NodeReplicas } from '../replica/node-replicas.js';
import type { ConditionReading } from './node-monitor.js';

/**
 * Time between two reads of the runtime's health. Reads may be frequent: a read makes no call to
 * the container runtime.
 */
export const HEALTH_INTERVAL_MS = 1_000;
/**
 * A restarted runtime answers again within this time; after this time, the node reports
 * CONTAINER_RUNTIME_UNAVAILABLE and gets no new containers, or PROCESS_RUNTIME_UNAVAILABLE and gets
 * no new processes.
 */
export const UNAVAILABLE_AFTER_MS = 5_000;
/**
 * Interval of the checks whether a runtime goes on to be silent, milliseconds. Short, because each
 * call in progress counts as silence, also a call that is about to be answered.
 */
const SILENCE_CHECK_MS = 100;
/**
 * After this time, the agent gives up starts that have not succeeded, and the coordinator places
 * the replicas elsewhere. Later than {@link UNAVAILABLE_AFTER_MS}, so that the coordinator excludes
 * this node before it places the replicas.
 */
export const GIVE_UP_AFTER_MS = 10_000;

const KINDS: readonly ContainerKind[] = ['process', 'container'];

export interface RuntimeHealthMonitorOptions {
  readonly runtime: Pick<ContainerRuntime, 'health' | 'list' | 'listAvailable'>;
  readonly replicas: Pick<NodeReplicas, 'listRunners' | 'pauseStarts'>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Monitors the health of the container runtime and of the supervisor of processes. While one of
 * them does not answer, reports a node condition, pauses its starts, and gives up those that have
 * not succeeded. Marks containers without their main process as not ready. Never stops a running
 * container.
 */
export class RuntimeHealthMonitor {
  private isUnavailable = false;
  /** Why the supervisor of processes does not answer, and what to do; empty while it answers. */
  private processProblem = '';
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

  /** PROCESS_RUNTIME_UNAVAILABLE as of the newest read. */
  get processCondition(): ConditionReading {
    return { status: this.processProblem !== '', reason: this.processProblem };
  }

  /**
   * Reads the health of the runtimes, updates the conditions and the replicas.
   * @returns True when a condition has changed.
   */
  refresh(): boolean {
    const { runtime, replicas, log } = this.options;
    const health = runtime.health?.() ?? HEALTHY;
    const { containersSilentMs, processesSilentMs, withoutProcess } = health;
    const hasProcessConditionChanged = this.refreshProcessCondition(health);
    const wasUnavailable = this.isUnavailable;
    this.isUnavailable = containersSilentMs >= UNAVAILABLE_AFTER_MS;
    if (this.isUnavailable && !wasUnavailable)
      log.warn('container runtime does not answer: this node takes no new containers', {
        containersSilentMs,
      });
    if (wasUnavailable && !this.isUnavailable) log.info('container runtime answers again');
    replicas.pauseStarts('container', this.isUnavailable);
    replicas.pauseStarts('process', this.processCondition.status);
    const containersWithoutProcess = new Set(
      withoutProcess.filter((containerId) => this.suspected.has(containerId)),
    );
    this.suspected = new Set(withoutProcess);
    for (const runner of replicas.listRunners()) {
      if (containersWithoutProcess.size > 0) runner.markProcessGone(containersWithoutProcess);
      if (containersSilentMs >= GIVE_UP_AFTER_MS) runner.giveUpStart('container');
      if (processesSilentMs >= GIVE_UP_AFTER_MS) runner.giveUpStart('process');
    }
    return hasProcessConditionChanged || this.isUnavailable !== wasUnavailable;
  }

  /**
   * Returns the kinds of containers whose runtime has not answered for
   * {@link UNAVAILABLE_AFTER_MS}, also a runtime that has just begun to hang or to refuse calls:
   * lists the containers, and then waits while a runtime is silent for a shorter time, at most
   * {@link UNAVAILABLE_AFTER_MS}.
   */
  async findSilentKinds(): Promise<readonly ContainerKind[]> {
    const { runtime, clock } = this.options;
    const readSilence = (): Readonly<Record<ContainerKind, number>> => {
      const { processesSilentMs, containersSilentMs } = runtime.health?.() ?? HEALTHY;
      return { process: processesSilentMs, container: containersSilentMs };
    };
    const findSilent = (): readonly ContainerKind[] => {
      const silentMs = readSilence();
      return KINDS.filter((kind) => silentMs[kind] >= UNAVAILABLE_AFTER_MS);
    };
    // A runtime that refuses calls fails the list at once, so the shortest silence counts.
    const isUncertain = (): boolean =>
      Object.values(readSilence()).some(
        (silentMs) => silentMs > 0 && silentMs < UNAVAILABLE_AFTER_MS,
      );
    // A list would only wait for a supervisor that is known to be silent.
    if (!findSilent().includes('process')) await listAvailable(runtime).catch(() => undefined);
    const waits = UNAVAILABLE_AFTER_MS / SILENCE_CHECK_MS;
    for (let wait = 1; wait <= waits && isUncertain(); wait += 1)
      await sleep(clock, SILENCE_CHECK_MS);
    return findSilent();
  }

  private refreshProcessCondition({ processesSilentMs, supervisorPid }: RuntimeHealth): boolean {
    const before = this.processProblem;
    this.processProblem =
      processesSilentMs >= UNAVAILABLE_AFTER_MS ? describeProcessProblem(supervisorPid) : '';
    const { log } = this.options;
    if (before === '' && this.processProblem !== '')
      log.warn('supervisor of processes does not answer: this node takes no new processes', {
        ...{ processesSilentMs, supervisorPid },
      });
    if (before !== '' && this.processProblem === '')
      log.info('supervisor of processes answers again');
    return before !== this.processProblem;
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

function describeProcessProblem(supervisorPid: number | undefined): string {
  const seconds = UNAVAILABLE_AFTER_MS / 1_000;
  const consequence = 'no new process is placed on this node until it does';
  return supervisorPid === undefined
    ? `the supervisor of the processes has not answered for ${seconds} s: ${consequence}; if the supervisor stays silent, read supervisor.log in the directory runtime of the agent's data directory`
    : `the supervisor of the processes (process ${supervisorPid}) has not answered for ${seconds} s: ${consequence}; if the supervisor stays silent, run kill -9 ${supervisorPid} on the machine: the agent starts another supervisor, and the processes keep running`;
}
