import type { ContainerId } from '@cloudless/base';
import type { ContainerEvent, ContainerStatus } from '../container-runtime.js';

interface KnownContainer {
  status: ContainerStatus;
  /** True when the current phase of the container was published as an event. */
  isPublished: boolean;
}

/** Exit of a container that the runtime no longer lists. */
const LOST_EXIT = { exitCode: -1, reason: 'lost: the runtime does not know it any more' } as const;

/**
 * The last known containers of a runtime, from lists, events and results of calls in any order. The
 * cache publishes each change once. The first list is the starting point and is not published. An
 * event about a container of the first list is published, because the reader may have subscribed
 * before the event.
 */
export class ContainerCache {
  private readonly known = new Map<ContainerId, KnownContainer>();
  private complete = false;

  /**
   * @param runtime - Name of the runtime, added to each status.
   * @param publish - Called with each change as an event.
   * @param wallTime - Returns the current time, which becomes the end time of lost containers.
   */
  constructor(
    private readonly runtime: string,
    private readonly publish: (event: ContainerEvent) => void,
    private readonly wallTime: () => number,
  ) {}

  /** True after the first complete list. */
  get isComplete(): boolean {
    return this.complete;
  }

  has(containerId: ContainerId): boolean {
    return this.known.has(containerId);
  }

  list(): readonly ContainerStatus[] {
    return [...this.known.values()].map(({ status }) => status);
  }

  /**
   * Returns the ids of all known containers. Callers read the ids before they call `list` of the
   * runtime, so that a container that is added meanwhile does not count as lost.
   */
  snapshotIds(): ReadonlySet<ContainerId> {
    return new Set(this.known.keys());
  }

  /**
   * Applies a complete list.
   * @param idsBefore - The result of {@link snapshotIds} before the list call. A container of these
   *   that is not listed is lost.
   * @returns The list with the runtime's name.
   */
  applyList(
    listed: readonly ContainerStatus[],
    idsBefore: ReadonlySet<ContainerId>,
  ): readonly ContainerStatus[] {
    const statuses = listed.map((status) => this.withRuntimeName(status));
    const isFirstList = !this.complete;
    this.complete = true;
    const ids = new Set(statuses.map(({ containerId }) => containerId));
    for (const containerId of idsBefore) if (!ids.has(containerId)) this.markLost(containerId);
    for (const status of statuses) {
      if (isFirstList && !this.known.has(status.containerId))
        this.known.set(status.containerId, { status, isPublished: false });
      else this.upsert(status);
    }
    return statuses;
  }

  /**
   * Applies the status of one container. An outdated status changes nothing.
   * @param isEvent - True when the status comes from an event of the runtime.
   * @returns The status with the runtime's name.
   */
  upsert(reportedStatus: ContainerStatus, isEvent = false): ContainerStatus {
    const status = this.withRuntimeName(reportedStatus);
    const { containerId, phase } = status;
    const before = this.known.get(containerId);
    const hasEnded = before?.status.phase === 'exited';
    if (hasEnded && phase === 'running') return status;
    if (before?.status.phase === phase) {
      const mustPublish = isEvent && !before.isPublished;
      this.known.set(containerId, { status, isPublished: before.isPublished || mustPublish });
      if (mustPublish) this.publish(toEvent(status));
      return status;
    }
    this.known.set(containerId, { status, isPublished: true });
    this.publish(toEvent(status));
    return status;
  }

  /** Drops a removed container. */
  forget(containerId: ContainerId): void {
    this.known.delete(containerId);
  }

  private withRuntimeName(status: ContainerStatus): ContainerStatus {
    return { ...status, runtime: this.runtime };
  }

  private markLost(containerId: ContainerId): void {
    const before = this.known.get(containerId)?.status;
    this.known.delete(containerId);
    if (before?.phase !== 'running') return;
    const { pid: _pid, ip: _ip, ...rest } = before;
    this.publish({
      kind: 'exited',
      status: { ...rest, phase: 'exited', finishedAtMs: this.wallTime(), ...LOST_EXIT },
    });
  }
}

function toEvent(status: ContainerStatus): ContainerEvent {
  return { kind: status.phase === 'running' ? 'started' : 'exited', status };
}
