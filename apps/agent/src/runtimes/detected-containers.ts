import { UNAVAILABLE_AFTER_MS } from '@cloudless/agent-core';
import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import { LazyRuntime, type ContainerRuntime } from '@cloudless/runtime';
import type { DetectionResult } from './container-detection.js';

/** Time between two searches for a container runtime, milliseconds. */
export const DETECTION_INTERVAL_MS = 30_000;

/** A container runtime that was used before and does not answer now. */
export interface AwaitedRuntime {
  readonly kind: 'awaited';
  readonly socketPath: string;
  /** Capabilities that the runtime last had; an empty list when they are not known. */
  readonly capabilities: readonly string[];
}

export interface DetectedContainersOptions<Runtime extends ContainerRuntime> {
  /** Result of the first search. */
  readonly firstResult: DetectionResult | AwaitedRuntime;
  /** Searches for a container runtime. Called every 30 s until a container runtime is found. */
  readonly detect: () => Promise<DetectionResult>;
  /** Opens a container runtime for the containers of a cluster. */
  readonly open: (socketPath: string, cluster: string) => Promise<Runtime>;
  /** Called before the container runtime is opened, to record that it may have containers. */
  readonly onUse: (socketPath: string, cluster: string) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The container runtime of a node, which may also appear after the start of the agent. Until a
 * container runtime is found, {@link runtime} has no capabilities and rejects containers.
 *
 * An awaited runtime keeps the capabilities that it last had, without which the coordinator would
 * stop the containers that run. It is reported as silent from the start, so that the node gets no
 * new containers.
 */
export class DetectedContainers<Runtime extends ContainerRuntime> {
  readonly runtime: LazyRuntime<Runtime>;
  private result: DetectionResult | AwaitedRuntime;
  private cluster: string | undefined;
  private timer: Timer | undefined;
  private isClosed = false;

  constructor(private readonly options: DetectedContainersOptions<Runtime>) {
    this.result = options.firstResult;
    const current = (): DetectionResult | AwaitedRuntime => this.result;
    this.runtime = new LazyRuntime<Runtime>({
      name: 'cri',
      get version() {
        return describeVersion(current());
      },
      get capabilities() {
        return listCapabilities(current());
      },
      get leastSilentMs() {
        return current().kind === 'awaited' ? UNAVAILABLE_AFTER_MS : 0;
      },
      clock: options.clock,
      missingReason: () => this.missingReason,
      open: (cluster) => options.open(this.socketPath ?? '', cluster),
    });
    if (this.result.kind === 'none') this.searchLater();
  }

  /** Reason why there is no container runtime; undefined when there is a container runtime. */
  get missingReason(): string | undefined {
    return this.result.kind === 'none' ? this.result.reason : undefined;
  }

  /** Description for people, such as `containerd 1.6.20 at PATH`; undefined without a runtime. */
  get description(): string | undefined {
    const { result } = this;
    return result.kind === 'none'
      ? undefined
      : `${describeVersion(result)} at ${result.socketPath}`;
  }

  /**
   * Sets the cluster that new containers belong to, and begins to open the container runtime if
   * there is one. Does not wait: a runtime that does not answer must not delay the processes.
   * @throws The error of `onUse`.
   */
  setCluster(cluster: string): void {
    this.cluster = cluster;
    this.use(this.result);
  }

  /** Ends the search for a container runtime. Does not close {@link runtime}. */
  close(): void {
    this.isClosed = true;
    this.timer?.cancel();
  }

  private get socketPath(): string | undefined {
    return this.result.kind === 'none' ? undefined : this.result.socketPath;
  }

  /** Opens the runtime of a result when the cluster is known. */
  private use(result: DetectionResult | AwaitedRuntime): void {
    if (this.cluster === undefined || result.kind === 'none') return;
    this.options.onUse(result.socketPath, this.cluster);
    this.runtime.setOwner(this.cluster).catch((reason: unknown) => {
      this.options.log.warn('container runtime not available', errorFields(reason));
    });
  }

  private searchLater(): void {
    if (this.isClosed) return;
    this.timer = this.options.clock.setTimer(DETECTION_INTERVAL_MS, () => void this.search());
  }

  private async search(): Promise<void> {
    try {
      const result = await this.options.detect();
      if (this.isClosed) return;
      const before = this.result;
      this.result = result;
      try {
        this.use(result);
      } catch (reason) {
        this.result = before;
        throw reason;
      }
      if (result.kind === 'found') {
        this.options.log.info('container runtime found: this node runs containers now', {
          containerRuntime: this.description,
        });
        return;
      }
    } catch (reason) {
      this.options.log.debug('search for a container runtime failed', errorFields(reason));
    }
    this.searchLater();
  }
}

function describeVersion(result: DetectionResult | AwaitedRuntime): string {
  return result.kind === 'found'
    ? `${result.probe.name} ${result.probe.version}`
    : 'a container runtime';
}

function listCapabilities(result: DetectionResult | AwaitedRuntime): readonly string[] {
  if (result.kind === 'none') return [];
  return result.kind === 'found' ? result.probe.capabilities : result.capabilities;
}
