import { CloudlessError, errorFields, errorKindOf, type ContainerId, type Log } from '@cloudless/base';
import { exitReason, PushQueue, type ContainerEvent, type ContainerStatus } from '@cloudless/runtime';
import type { StopSignal } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { closedError } from '../client/cri-client.js';
import { ContainerState, type Container } from '../gen/runtime/v1/api_pb.js';
import { containerIdOf, isOwned, ownedBy, type Owner } from './labels.js';
import { toStatus } from './to-status.js';

/** One container of ours, as the newest list showed it. */
export interface Known {
  readonly runtimeId: string;
  readonly sandboxId: string;
  readonly state: ContainerState;
  readonly ip: string;
  readonly status: ContainerStatus;
}

/** Needs of an {@link Inventory}. */
export interface InventoryOptions {
  readonly client: CriClient;
  readonly owner: Owner;
  readonly log: Log;
  /** When the machine was started, wall-clock milliseconds. */
  readonly bootedAtMs: number;
  /** Wall-clock milliseconds. */
  readonly wallTime: () => number;
}

/** A reader of events this far behind is cut off. */
const EVENT_LIMIT = 10_000;

/**
 * What runs here and is ours. Every look asks the runtime; what differs from the look before becomes events. So lists and
 * events are one: what a list shows, the events have told.
 */
export class Inventory {
  private known = new Map<string, Known>();
  private readonly listeners = new Set<PushQueue<ContainerEvent>>();
  private readonly waiting = new Map<ContainerId, Set<(outcome: ContainerStatus | CloudlessError) => void>>();
  private looking: Promise<void> | undefined;
  private nextLook: Promise<void> | undefined;

  constructor(private readonly options: InventoryOptions) {}

  /** Whether somebody waits for what happens. */
  get isWatched(): boolean {
    return this.listeners.size > 0 || this.waiting.size > 0;
  }

  /** As of the newest look. */
  all(): readonly Known[] {
    return [...this.known.values()];
  }

  /** As of the newest look. */
  find(containerId: ContainerId): Known | undefined {
    return this.all().find(({ status }) => status.containerId === containerId);
  }

  /** Looks anew, then finds. @throws kind `notFound`. */
  async lookFor(containerId: ContainerId): Promise<Known> {
    await this.look();
    const found = this.find(containerId);
    if (found === undefined) throw new CloudlessError('notFound', `container ${containerId} is not on this node`);
    return found;
  }

  /** Asks the runtime; what it answers is not older than this call. @throws kind `unavailable` when it does not answer. */
  look(): Promise<void> {
    if (this.looking === undefined) {
      this.looking = this.lookNow().finally(() => (this.looking = undefined));
      return this.looking;
    }
    // The look that runs may have read already what changed since: one more, shared by all who ask meanwhile.
    this.nextLook ??= this.looking
      .catch(() => undefined)
      .then(() => {
        this.nextLook = undefined;
        return this.look();
      });
    return this.nextLook;
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    const queue: PushQueue<ContainerEvent> = new PushQueue<ContainerEvent>({
      limit: EVENT_LIMIT,
      signal,
      onClose: () => queueMicrotask(() => this.listeners.delete(queue)),
    });
    if (this.options.client.closed.aborted) queue.fail(closedError());
    else this.listeners.add(queue);
    return queue;
  }

  /** Resolves when the container has ended, as looks show it. */
  ended(containerId: ContainerId): { readonly promise: Promise<ContainerStatus>; readonly cancel: () => void } {
    let cancel = (): void => undefined;
    const promise = new Promise<ContainerStatus>((resolve, reject) => {
      const waiters = this.waiting.get(containerId) ?? new Set();
      this.waiting.set(containerId, waiters);
      const settle = (outcome: ContainerStatus | CloudlessError): void => {
        waiters.delete(settle);
        if (waiters.size === 0 && this.waiting.get(containerId) === waiters) this.waiting.delete(containerId);
        if (outcome instanceof CloudlessError) reject(outcome);
        else resolve(outcome);
      };
      waiters.add(settle);
      cancel = () => settle(closedError());
    });
    promise.catch(() => undefined); // a wait that was given up is nobody's failure
    return { promise, cancel };
  }

  /** The runtime went away: who listens must list anew. */
  fail(reason: CloudlessError): void {
    for (const queue of [...this.listeners]) queue.fail(reason);
    this.listeners.clear();
    for (const waiters of [...this.waiting.values()]) for (const settle of [...waiters]) settle(reason);
  }

  private async lookNow(): Promise<void> {
    const { client, owner } = this.options;
    const { containers } = await client.quick('ListContainers', (calls, signal) =>
      calls.listContainers({ filter: { labelSelector: ownedBy(owner) } }, { signal }),
    );
    const ours = containers.filter(({ labels, state }) => isOwned(labels, owner) && state !== ContainerState.CONTAINER_CREATED);
    const looked = await Promise.all(ours.map((container) => this.lookAt(container)));
    const before = this.known;
    this.known = new Map(looked.filter((each) => each !== undefined).map((each) => [each.runtimeId, each]));
    for (const { runtimeId, status } of this.known.values()) this.tell(before.get(runtimeId)?.status, status);
    for (const [runtimeId, { status }] of before) if (!this.known.has(runtimeId)) this.tellRemoved(status);
  }

  /** What did not change since the last look is not asked for again. */
  private async lookAt(container: Container): Promise<Known | undefined> {
    const before = this.known.get(container.id);
    if (before?.state === container.state) return before;
    const { client, bootedAtMs, log } = this.options;
    try {
      const [answer, ip] = await Promise.all([
        client.quick('ContainerStatus', (calls, signal) =>
          calls.containerStatus({ containerId: container.id, verbose: true }, { signal }),
        ),
        before?.ip ?? this.ipOf(container.podSandboxId),
      ]);
      const state = answer.status?.state ?? container.state;
      const status = toStatus(answer, ip, bootedAtMs);
      return { runtimeId: container.id, sandboxId: container.podSandboxId, state, ip, status };
    } catch (reason) {
      if (errorKindOf(reason) === 'unavailable') throw reason;
      if (errorKindOf(reason) === 'notFound') return undefined; // removed meanwhile
      log.warn('container not readable', { containerId: containerIdOf(container.labels), ...errorFields(reason) });
      return before;
    }
  }

  private async ipOf(podSandboxId: string): Promise<string> {
    const { status } = await this.options.client.quick('PodSandboxStatus', (calls, signal) =>
      calls.podSandboxStatus({ podSandboxId }, { signal }),
    );
    return status?.network?.ip ?? '';
  }

  private tell(before: ContainerStatus | undefined, now: ContainerStatus): void {
    if (before === undefined) this.push({ kind: 'started', status: now.phase === 'running' ? now : asRunning(now) });
    if (now.phase === 'exited' && before?.phase !== 'exited') this.pushExit(now);
  }

  /** Somebody else took it away while it ran. */
  private tellRemoved(last: ContainerStatus): void {
    if (last.phase === 'exited') return;
    const { pid: _, ...rest } = last;
    const finishedAtMs = Math.max(last.startedAtMs, this.options.wallTime());
    this.pushExit({ ...rest, phase: 'exited', finishedAtMs, exitCode: -1, reason: exitReason(-1) });
  }

  private pushExit(status: ContainerStatus): void {
    this.push({ kind: 'exited', status });
    for (const settle of [...(this.waiting.get(status.containerId) ?? [])]) settle(status);
  }

  private push(event: ContainerEvent): void {
    for (const queue of [...this.listeners]) queue.push(event);
  }
}

/** A container that ended before anybody saw it run has run all the same. */
function asRunning({ finishedAtMs: _f, exitCode: _e, reason: _r, ...rest }: ContainerStatus): ContainerStatus {
  return { ...rest, phase: 'running' };
}
