import type { ContainerId } from '@cloudless/base';
import type { ContainerEvent, ContainerStatus } from '../container-runtime.js';

interface KnownContainer {
  status: ContainerStatus;
  /** Its current phase has been published as an event. */
  isPublished: boolean;
}

/** Exit of a container that the runtime no longer lists. */
const LOST_EXIT = { exitCode: -1, reason: 'lost: the runtime does not know it any more' } as const;

/**
 * Last known containers of a runtime, from lists, events and results of calls in any order. Each
 * change is published once. The first list is the starting point and is not published. An event
 * about a container of the first list is published, as it may have happened after the reader
 * subscribed.
 */
export class ContainerCache {
  private readonly known = new Map<ContainerId, KnownContainer>();
  private complete = false;

  /**
   * @param runtime - Name of the runtime, added to each status.
   * @param publish - Receives each change as an event.
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
   * Known ids. Callers read them before they call `list`, so that containers added meanwhile are
   * not considered missing.
   */
  snapshotIds(): ReadonlySet<ContainerId> {
    return new Set(this.known.keys());
  }

  /**
   * Applies a complete list. A container of `mark` that is not listed is lost. @returns The list
   * with the runtime's name.
   */
  applyList(
    listed: readonly ContainerStatus[],
    mark: ReadonlySet<ContainerId>,
  ): readonly ContainerStatus[] {
    const statuses = listed.map((status) => this.withRuntimeName(status));
    const first = !this.complete;
    this.complete = true;
    const ids = new Set(statuses.map(({ containerId }) => containerId));
    for (const containerId of mark) if (!ids.has(containerId)) this.markLost(containerId);
    for (const status of statuses) {
      if (first && !this.known.has(status.containerId))
        this.known.set(status.containerId, { status, isPublished: false });
      else this.upsert(status);
    }
    return statuses;
  }

  /**
   * Applies the status of one container. An outdated status changes nothing.
   * @param isEvent - The status comes from an event of the runtime.
   * @returns The status with the runtime's name.
   */
  upsert(reportedStatus: ContainerStatus, isEvent = false): ContainerStatus {
    const status = this.withRuntimeName(reportedStatus);
    const { containerId, phase } = status;
    const before = this.known.get(containerId);
    const hasEnded = before?.status.phase === 'exited';
    if (hasEnded && phase === 'running') return status;
    if (before?.status.phase === phase) {
      const tells = isEvent && !before.isPublished;
      this.known.set(containerId, { status, isPublished: before.isPublished || tells });
      if (tells) this.publish(toEvent(status));
      return status;
    }
    this.known.set(containerId, { status, isPublished: true });
    this.publish(toEvent(status));
    return status;
  }

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
