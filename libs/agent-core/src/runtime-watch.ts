import { sleep, type Clock, type Log } from '@cloudless/base';
import { HEALTHY, type ContainerRuntime } from '@cloudless/runtime';
import type { PressureReading } from './node-watch.js';
import type { NodeReplicas } from './replica/node-replicas.js';

/** How often the runtime is asked how it is; that costs no call to anybody. */
export const HEALTH_INTERVAL_MS = 1_000;
/** A container runtime that is restarted answers again within this time; after it, the node takes no new containers. */
export const UNAVAILABLE_AFTER_MS = 5_000;
/**
 * What has not been started by then goes elsewhere. Later than {@link UNAVAILABLE_AFTER_MS}, so that the coordinator knows by then
 * not to place it here again.
 */
export const GIVE_UP_AFTER_MS = 10_000;

/** Needs of a {@link RuntimeWatch}. */
export interface RuntimeWatchOptions {
  readonly runtime: Pick<ContainerRuntime, 'health'>;
  readonly replicas: Pick<NodeReplicas, 'all'>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Acts on a container runtime that does not answer: says so as a condition of the node, gives up what was not started, and takes
 * containers whose main process has gone for not ready. What runs is left alone.
 */
export class RuntimeWatch {
  private isAway = false;
  /** Without a process at the last look; one that the runtime tells of within a second is no news. */
  private suspected: ReadonlySet<string> = new Set();

  constructor(private readonly options: RuntimeWatchOptions) {}

  /** As of the last look. */
  get condition(): PressureReading {
    const reason = this.isAway ? `the container runtime has not answered for ${UNAVAILABLE_AFTER_MS / 1_000} s` : '';
    return { status: this.isAway, reason };
  }

  /** @returns Whether the condition has flipped. */
  look(): boolean {
    const { runtime, replicas, log } = this.options;
    const { containersSilentMs, withoutProcess } = runtime.health?.() ?? HEALTHY;
    const wasAway = this.isAway;
    this.isAway = containersSilentMs >= UNAVAILABLE_AFTER_MS;
    if (this.isAway && !wasAway)
      log.warn('container runtime does not answer: this node takes no new containers', { containersSilentMs });
    if (wasAway && !this.isAway) log.info('container runtime answers again');
    const gone = new Set(withoutProcess.filter((containerId) => this.suspected.has(containerId)));
    this.suspected = new Set(withoutProcess);
    for (const runner of replicas.all()) {
      if (gone.size > 0) runner.withoutProcess(gone);
      if (containersSilentMs >= GIVE_UP_AFTER_MS) runner.giveUpStart();
    }
    return this.isAway !== wasAway;
  }

  /** Looks until aborted. @param onFlip - Called as soon as the condition has flipped. */
  async run(onFlip: () => void, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.options.clock, HEALTH_INTERVAL_MS, signal).catch(() => undefined);
      if (!signal.aborted && this.look()) onFlip();
    }
  }
}
