import type { ContainerId } from '@cloudless/base';
import type { ContainerEvent, ContainerStatus } from './container-runtime.js';

interface Known {
  status: ContainerStatus;
  /** Its present phase was told as an event. */
  told: boolean;
}

/** Why a container ended that the runtime does not have any more. */
const VANISHED = { exitCode: -1, reason: 'lost: the runtime does not know it any more' } as const;

/**
 * What a runtime is known to have, from lists, events and answers in any order; each change is told
 * once. The first list is where it begins, and is not told: an event about what it shows may still
 * come and is then passed on, as it may be of after the call.
 */
export class KnownContainers {
  private readonly known = new Map<ContainerId, Known>();
  private complete = false;

  /**
   * @param runtime - Its name, for the statuses.
   * @param tell - Gets every change as an event.
   */
  constructor(
    private readonly runtime: string,
    private readonly tell: (event: ContainerEvent) => void,
    private readonly wallTime: () => number,
  ) {}

  /** Whether a whole list was ever seen. */
  get isComplete(): boolean {
    return this.complete;
  }

  has(containerId: ContainerId): boolean {
    return this.known.has(containerId);
  }

  all(): readonly ContainerStatus[] {
    return [...this.known.values()].map(({ status }) => status);
  }

  /** To be taken before a list is asked for: what is unknown then is not missed in it. */
  mark(): ReadonlySet<ContainerId> {
    return new Set(this.known.keys());
  }

  /**
   * Takes a whole list. What had been known at `mark` and is not in it has gone. @returns The list,
   * with the runtime's name.
   */
  compare(
    listed: readonly ContainerStatus[],
    mark: ReadonlySet<ContainerId>,
  ): readonly ContainerStatus[] {
    const statuses = listed.map((status) => this.named(status));
    const first = !this.complete;
    this.complete = true;
    const ids = new Set(statuses.map(({ containerId }) => containerId));
    for (const containerId of mark) if (!ids.has(containerId)) this.vanish(containerId);
    for (const status of statuses) {
      if (first && !this.known.has(status.containerId))
        this.known.set(status.containerId, { status, told: false });
      else this.take(status);
    }
    return statuses;
  }

  /**
   * Takes what was said of one container; what is older than what is known changes nothing.
   * @param isEvent - The runtime told it by itself.
   * @returns The same, with the runtime's name.
   */
  take(said: ContainerStatus, isEvent = false): ContainerStatus {
    const status = this.named(said);
    const { containerId, phase } = status;
    const before = this.known.get(containerId);
    const hasEnded = before?.status.phase === 'exited';
    if (hasEnded && phase === 'running') return status;
    if (before?.status.phase === phase) {
      const tells = isEvent && !before.told;
      this.known.set(containerId, { status, told: before.told || tells });
      if (tells) this.tell(eventOf(status));
      return status;
    }
    this.known.set(containerId, { status, told: true });
    this.tell(eventOf(status));
    return status;
  }

  forget(containerId: ContainerId): void {
    this.known.delete(containerId);
  }

  private named(status: ContainerStatus): ContainerStatus {
    return { ...status, runtime: this.runtime };
  }

  private vanish(containerId: ContainerId): void {
    const before = this.known.get(containerId)?.status;
    this.known.delete(containerId);
    if (before?.phase !== 'running') return;
    const { pid: _pid, ip: _ip, ...rest } = before;
    this.tell({
      kind: 'exited',
      status: { ...rest, phase: 'exited', finishedAtMs: this.wallTime(), ...VANISHED },
    });
  }
}

function eventOf(status: ContainerStatus): ContainerEvent {
  return { kind: status.phase === 'running' ? 'started' : 'exited', status };
}
