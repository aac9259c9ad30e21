import { create } from '@bufbuild/protobuf';
import {
  CloudlessError,
  errorFields,
  errorKindOf,
  type ContainerId,
  type Log,
} from '@cloudless/base';
import {
  EventReaders,
  exitReason,
  type ContainerEvent,
  type ContainerStatus,
} from '@cloudless/runtime';
import type { StopSignal } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { closedError } from '../client/cri-client.js';
import {
  ContainerState,
  ContainerStatusResponseSchema,
  type Container,
  type ContainerStatusResponse,
} from '../gen/runtime/v1/api_pb.js';
import {
  containerIdOf,
  fromAnnotations,
  isOwned,
  ownedBy,
  type Memory,
  type Owner,
} from './labels.js';
import { isThere } from '../system/host-processes.js';
import { pidOf, toStatus, wasNeverStarted } from './to-status.js';

/** A container of this owner, as the newest list showed it. */
export interface Known {
  readonly runtimeId: string;
  readonly sandboxId: string;
  readonly state: ContainerState;
  /** IP address; empty in the network of the machine. */
  readonly ip: string;
  readonly status: ContainerStatus;
  readonly memory: Memory;
  /**
   * Whether the main process was visible when the status was read. An agent may not see the
   * processes of containers.
   */
  readonly hadProcess: boolean;
}

export interface InventoryOptions {
  readonly client: CriClient;
  readonly owner: Owner;
  readonly log: Log;
  /** Boot time of the machine, wall-clock milliseconds. */
  readonly bootedAtMs: number;
  /** Wall-clock milliseconds. */
  readonly wallTime: () => number;
}

const NANOS_PER_MS = 1_000_000n;
/**
 * Marks a container that could not be read so far. No list shows this state, because {@link
 * Inventory} omits containers that were never started.
 */
const UNREAD = ContainerState.CONTAINER_CREATED;

/**
 * Containers of this owner on the runtime. Every refresh lists them, and the differences from the
 * previous list become events. Lists and events therefore agree: every container in a list was
 * reported by an event before.
 */
export class Inventory {
  private known = new Map<string, Known>();
  private readonly readers = new EventReaders();
  private readonly waiting = new Map<
    ContainerId,
    Set<(outcome: ContainerStatus | CloudlessError) => void>
  >();
  private looking: Promise<void> | undefined;
  private nextLook: Promise<void> | undefined;
  /**
   * Containers that were added since the running refresh began, which may have read its list
   * before.
   */
  private readonly learned = new Set<string>();
  private readonly dropped = new Set<string>();

  constructor(private readonly options: InventoryOptions) {}

  /** Whether a caller waits for events. */
  get isWatched(): boolean {
    return !this.readers.isEmpty || this.waiting.size > 0;
  }

  /** Returns all containers, as of the newest refresh. */
  all(): readonly Known[] {
    return [...this.known.values()];
  }

  /** Returns a container, as of the newest refresh. */
  find(containerId: ContainerId): Known | undefined {
    return this.all().find(({ status }) => status.containerId === containerId);
  }

  /**
   * Returns the containers that were running at the newest refresh, and whose main process no
   * longer exists.
   */
  withoutProcess(): readonly ContainerId[] {
    return this.all().flatMap(({ hadProcess, status: { containerId, phase, pid } }) =>
      hadProcess && phase === 'running' && pid !== undefined && !isThere(pid) ? [containerId] : [],
    );
  }

  /**
   * Refreshes the inventory and returns a container.
   * @throws kind `notFound` when the container does not exist, `unavailable` when the runtime does
   *   not answer.
   */
  async lookFor(containerId: ContainerId): Promise<Known> {
    await this.look();
    const found = this.find(containerId);
    if (found === undefined)
      throw new CloudlessError('notFound', `container ${containerId} is not on this node`);
    return found;
  }

  /**
   * Lists all containers. The result is not older than this call.
   * @throws kind `unavailable` when the runtime does not answer.
   */
  look(): Promise<void> {
    if (this.looking === undefined) {
      this.looking = this.lookNow().finally(() => (this.looking = undefined));
      return this.looking;
    }
    // The running refresh may have read its list before the latest change: one more refresh, shared
    // by all callers.
    this.nextLook ??= this.looking
      .catch(() => undefined)
      .then(() => {
        this.nextLook = undefined;
        return this.look();
      });
    return this.nextLook;
  }

  /** Reads the status of one container for {@link Inventory.upsert}. */
  statusOf(runtimeId: string): Promise<ContainerStatusResponse> {
    return this.options.client.quick('ContainerStatus', (calls, signal) =>
      calls.containerStatus({ containerId: runtimeId, verbose: true }, { signal }),
    );
  }

  /**
   * Reads the process id of the sandbox; undefined when the container runtime does not report it.
   */
  async sandboxPidOf(podSandboxId: string): Promise<number | undefined> {
    const { info } = await this.options.client.quick('PodSandboxStatus', (calls, signal) =>
      calls.podSandboxStatus({ podSandboxId, verbose: true }, { signal }),
    );
    return pidOf(info);
  }

  async ipOf(podSandboxId: string): Promise<string> {
    const { status } = await this.options.client.quick('PodSandboxStatus', (calls, signal) =>
      calls.podSandboxStatus({ podSandboxId }, { signal }),
    );
    return status?.network?.ip ?? '';
  }

  /**
   * Adds a container that was just started, without listing all the others. The status of a later
   * refresh is kept.
   */
  learn(
    at: Pick<Known, 'runtimeId' | 'sandboxId' | 'ip'>,
    answer: ContainerStatusResponse,
  ): ContainerStatus {
    const before = this.known.get(at.runtimeId);
    if (before !== undefined) return before.status;
    const known = this.toKnown(at, answer, ContainerState.CONTAINER_RUNNING);
    this.learned.add(at.runtimeId);
    this.known.set(at.runtimeId, known);
    this.tell(undefined, known.status);
    return known.status;
  }

  /**
   * Reads whether one container has ended, without listing all the others.
   * @returns Undefined when the container was removed: the next refresh reports that.
   */
  async refresh(known: Known): Promise<Known | undefined> {
    const { runtimeId } = known;
    let answer: ContainerStatusResponse;
    try {
      answer = await this.options.client.quick('ContainerStatus', (calls, signal) =>
        calls.containerStatus({ containerId: runtimeId }, { signal }),
      );
    } catch (reason) {
      if (errorKindOf(reason) === 'notFound') return undefined;
      throw reason;
    }
    const before = this.known.get(runtimeId);
    // a refresh was faster
    if (before === undefined || before.status.phase === 'exited') return before;
    if (answer.status?.state !== ContainerState.CONTAINER_EXITED) return before;
    const now = this.toKnown(known, answer, ContainerState.CONTAINER_EXITED);
    this.known.set(runtimeId, now);
    this.tell(before.status, now.status);
    return now;
  }

  /** Removes an ended container that this runtime has deleted. No event is reported. */
  drop({ runtimeId }: Known): void {
    this.known.delete(runtimeId);
    this.dropped.add(runtimeId);
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    return this.readers.read(
      signal,
      this.options.client.closed.aborted ? closedError() : undefined,
    );
  }

  /**
   * Returns a promise that resolves when a refresh reports the end of the container. `cancel`
   * rejects it.
   */
  ended(containerId: ContainerId): {
    readonly promise: Promise<ContainerStatus>;
    readonly cancel: () => void;
  } {
    let cancel = (): void => undefined;
    const promise = new Promise<ContainerStatus>((resolve, reject) => {
      const waiters = this.waiting.get(containerId) ?? new Set();
      this.waiting.set(containerId, waiters);
      const settle = (outcome: ContainerStatus | CloudlessError): void => {
        waiters.delete(settle);
        if (waiters.size === 0 && this.waiting.get(containerId) === waiters)
          this.waiting.delete(containerId);
        if (outcome instanceof CloudlessError) reject(outcome);
        else resolve(outcome);
      };
      waiters.add(settle);
      cancel = () => settle(closedError());
    });
    promise.catch(() => undefined); // a cancelled wait is not an error
    return { promise, cancel };
  }

  /** Fails all readers and waiting callers, which must list again. */
  fail(reason: CloudlessError): void {
    this.readers.fail(reason);
    for (const waiters of [...this.waiting.values()])
      for (const settle of [...waiters]) settle(reason);
  }

  private async lookNow(): Promise<void> {
    const { client, owner } = this.options;
    this.learned.clear();
    this.dropped.clear();
    const { containers } = await client.quick('ListContainers', (calls, signal) =>
      calls.listContainers({ filter: { labelSelector: ownedBy(owner) } }, { signal }),
    );
    const ours = containers.filter(
      ({ labels, state }) => isOwned(labels, owner) && state !== ContainerState.CONTAINER_CREATED,
    );
    const looked = await Promise.all(ours.map((container) => this.lookAt(container)));
    const before = this.known;
    const there = looked.filter(
      (each) => each !== undefined && !this.dropped.has(each.runtimeId),
    ) as readonly Known[];
    this.known = new Map(
      there.map((each) => [each.runtimeId, laterOf(before.get(each.runtimeId), each)]),
    );
    for (const [runtimeId, known] of before) {
      if (this.learned.has(runtimeId) && !this.known.has(runtimeId))
        this.known.set(runtimeId, known);
    }
    for (const { runtimeId, status } of this.known.values())
      this.tell(before.get(runtimeId)?.status, status);
    for (const [runtimeId, { status }] of before)
      if (!this.known.has(runtimeId)) this.tellRemoved(status);
  }

  /** Reads the status of a container whose state has changed since the last refresh. */
  private async lookAt(container: Container): Promise<Known | undefined> {
    const before = this.known.get(container.id);
    if (before?.state === container.state) return before;
    const { id: runtimeId, podSandboxId: sandboxId, annotations } = container;
    const hasAddress = fromAnnotations(annotations).hostNetwork !== true;
    const [answer, ip] = await Promise.allSettled([
      this.statusOf(runtimeId),
      before?.ip || !hasAddress ? (before?.ip ?? '') : this.ipOf(sandboxId),
    ]);
    if (answer.status === 'fulfilled' && wasNeverStarted(answer.value.status)) return undefined;
    if (answer.status === 'fulfilled' && ip.status === 'fulfilled') {
      return this.toKnown({ runtimeId, sandboxId, ip: ip.value }, answer.value, container.state);
    }
    const failures = [answer, ip].flatMap((each) =>
      each.status === 'rejected' ? [each.reason as unknown] : [],
    );
    for (const reason of failures) if (errorKindOf(reason) === 'unavailable') throw reason;
    // removed meanwhile
    if (failures.some((reason) => errorKindOf(reason) === 'notFound')) return undefined;
    if (before?.state !== UNREAD) {
      const containerId = containerIdOf(container.labels);
      this.options.log.warn('container status not readable', {
        containerId,
        ...errorFields(failures[0]),
      });
    }
    return before ?? this.fromList(container, answer, ip);
  }

  /**
   * Builds an entry from the list for a container whose status could not be read yet. The next
   * refresh reads it again.
   */
  private fromList(
    { id: runtimeId, podSandboxId: sandboxId, labels, annotations, state, createdAt }: Container,
    answer: PromiseSettledResult<ContainerStatusResponse>,
    ip: PromiseSettledResult<string>,
  ): Known {
    const finishedAt = BigInt(Math.round(this.options.wallTime())) * NANOS_PER_MS;
    const listed = {
      labels,
      annotations,
      state,
      createdAt,
      finishedAt,
      exitCode: -1,
      reason: 'Unknown',
    };
    const read =
      answer.status === 'fulfilled'
        ? answer.value
        : create(ContainerStatusResponseSchema, { status: listed });
    const at = { runtimeId, sandboxId, ip: ip.status === 'fulfilled' ? ip.value : '' };
    return { ...this.toKnown(at, read, state), state: UNREAD };
  }

  private toKnown(
    { runtimeId, sandboxId, ip }: Pick<Known, 'runtimeId' | 'sandboxId' | 'ip'>,
    answer: ContainerStatusResponse,
    listed: ContainerState,
  ): Known {
    const status = toStatus(answer, ip, this.options.bootedAtMs);
    const memory = fromAnnotations(answer.status?.annotations ?? {});
    const hadProcess = status.pid !== undefined && isThere(status.pid);
    return {
      runtimeId,
      sandboxId,
      ip,
      state: answer.status?.state ?? listed,
      status,
      memory,
      hadProcess,
    };
  }

  private tell(before: ContainerStatus | undefined, now: ContainerStatus): void {
    if (before === undefined)
      this.push({ kind: 'started', status: now.phase === 'running' ? now : asRunning(now) });
    if (now.phase === 'exited' && before?.phase !== 'exited') this.pushExit(now);
  }

  /** Reports the end of a container that another program has removed while it ran. */
  private tellRemoved(last: ContainerStatus): void {
    if (last.phase === 'exited') return;
    const { pid: _pid, ip: _ip, ...rest } = last;
    const finishedAtMs = Math.max(last.startedAtMs, this.options.wallTime());
    this.pushExit({ ...rest, phase: 'exited', finishedAtMs, exitCode: -1, reason: exitReason(-1) });
  }

  private pushExit(status: ContainerStatus): void {
    this.push({ kind: 'exited', status });
    for (const settle of [...(this.waiting.get(status.containerId) ?? [])]) settle(status);
  }

  private push(event: ContainerEvent): void {
    this.readers.tell(event);
  }
}

/** Keeps a known end: the list may have been read before it. */
function laterOf(known: Known | undefined, looked: Known): Known {
  return known?.status.phase === 'exited' && known.state !== UNREAD ? known : looked;
}

/**
 * Returns the running status of a container that ended before it was seen running, for its start
 * event.
 */
function asRunning({
  finishedAtMs: _f,
  exitCode: _e,
  reason: _r,
  ...rest
}: ContainerStatus): ContainerStatus {
  return { ...rest, phase: 'running' };
}
