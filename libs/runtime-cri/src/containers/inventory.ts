import { create } from '@bufbuild/protobuf';
import {
  CloudlessError,
  errorFields,
  errorKindOf,
  type ContainerId,
  type Log,
} from '@cloudless/base';
import {
  EventBroadcaster,
  formatExitReason,
  type ContainerEvent,
  type ContainerStatus,
} from '@cloudless/runtime';
import type { StopSignal } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { createClosedError } from '../client/cri-client.js';
import {
  ContainerState,
  ContainerStatusResponseSchema,
  type Container,
  type ContainerStatusResponse,
} from '../gen/runtime/v1/api_pb.js';
import { processExists } from '../system/host-processes.js';
import {
  readContainerId,
  fromAnnotations,
  isOwned,
  toOwnerSelector,
  type RecordedRequest,
  type Owner,
} from './labels.js';
import { parsePid, toStatus, wasNeverStarted } from './to-status.js';

/** A container of this owner, as the newest list showed it. */
export interface KnownContainer {
  readonly runtimeId: string;
  readonly sandboxId: string;
  readonly state: ContainerState;
  /** IP address; empty in the network of the machine. */
  readonly ip: string;
  readonly status: ContainerStatus;
  readonly recorded: RecordedRequest;
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
  private known = new Map<string, KnownContainer>();
  private readonly readers = new EventBroadcaster();
  private readonly exitWaiters = new Map<
    ContainerId,
    Set<(outcome: ContainerStatus | CloudlessError) => void>
  >();
  private runningRefresh: Promise<void> | undefined;
  private nextRefresh: Promise<void> | undefined;
  /**
   * Containers that were added since the running refresh began, which may have read its list
   * before.
   */
  private readonly upserted = new Set<string>();
  private readonly dropped = new Set<string>();

  constructor(private readonly options: InventoryOptions) {}

  /** Whether a caller waits for events. */
  get isWatched(): boolean {
    return !this.readers.isEmpty || this.exitWaiters.size > 0;
  }

  /** Returns all containers, as of the newest refresh. */
  list(): readonly KnownContainer[] {
    return [...this.known.values()];
  }

  /** Returns a container, as of the newest refresh. */
  find(containerId: ContainerId): KnownContainer | undefined {
    return this.list().find(({ status }) => status.containerId === containerId);
  }

  /**
   * Returns the containers that were running at the newest refresh, and whose main process no
   * longer exists.
   */
  findWithoutProcess(): readonly ContainerId[] {
    return this.list().flatMap(({ hadProcess, status: { containerId, phase, pid } }) =>
      hadProcess && phase === 'running' && pid !== undefined && !processExists(pid)
        ? [containerId]
        : [],
    );
  }

  /**
   * Refreshes the inventory and returns a container.
   * @throws kind `notFound` when the container does not exist, `unavailable` when the runtime does
   *   not answer.
   */
  async refreshAndFind(containerId: ContainerId): Promise<KnownContainer> {
    await this.refreshAll();
    const found = this.find(containerId);
    if (found === undefined)
      throw new CloudlessError('notFound', `container ${containerId} is not on this node`);
    return found;
  }

  /**
   * Lists all containers. The result is not older than this call.
   * @throws kind `unavailable` when the runtime does not answer.
   */
  refreshAll(): Promise<void> {
    if (this.runningRefresh === undefined) {
      this.runningRefresh = this.refreshAllNow().finally(() => (this.runningRefresh = undefined));
      return this.runningRefresh;
    }
    // The running refresh may have read its list before the latest change: one more refresh, shared
    // by all callers.
    this.nextRefresh ??= this.runningRefresh
      .catch(() => undefined)
      .then(() => {
        this.nextRefresh = undefined;
        return this.refreshAll();
      });
    return this.nextRefresh;
  }

  /** Reads the status of one container for {@link Inventory.upsert}. */
  readStatus(runtimeId: string): Promise<ContainerStatusResponse> {
    return this.options.client.callQuick('ContainerStatus', (calls, signal) =>
      calls.containerStatus({ containerId: runtimeId, verbose: true }, { signal }),
    );
  }

  /**
   * Reads the process id of the sandbox; undefined when the container runtime does not report it.
   */
  async readSandboxPid(podSandboxId: string): Promise<number | undefined> {
    const { info } = await this.options.client.callQuick('PodSandboxStatus', (calls, signal) =>
      calls.podSandboxStatus({ podSandboxId, verbose: true }, { signal }),
    );
    return parsePid(info);
  }

  async readSandboxIp(podSandboxId: string): Promise<string> {
    const { status } = await this.options.client.callQuick('PodSandboxStatus', (calls, signal) =>
      calls.podSandboxStatus({ podSandboxId }, { signal }),
    );
    return status?.network?.ip ?? '';
  }

  /**
   * Adds a container that was just started, without listing all the others. The status of a later
   * refresh is kept.
   */
  upsert(
    at: Pick<KnownContainer, 'runtimeId' | 'sandboxId' | 'ip'>,
    answer: ContainerStatusResponse,
  ): ContainerStatus {
    const before = this.known.get(at.runtimeId);
    if (before !== undefined) return before.status;
    const known = this.toKnown(at, answer, ContainerState.CONTAINER_RUNNING);
    this.upserted.add(at.runtimeId);
    this.known.set(at.runtimeId, known);
    this.emitChanges(undefined, known.status);
    return known.status;
  }

  /**
   * Reads whether one container has ended, without listing all the others.
   * @returns Undefined when the container was removed: the next refresh reports that.
   */
  async refreshOne(known: KnownContainer): Promise<KnownContainer | undefined> {
    const { runtimeId } = known;
    let answer: ContainerStatusResponse;
    try {
      answer = await this.options.client.callQuick('ContainerStatus', (calls, signal) =>
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
    this.emitChanges(before.status, now.status);
    return now;
  }

  /** Removes an ended container that this runtime has deleted. No event is reported. */
  drop({ runtimeId }: KnownContainer): void {
    this.known.delete(runtimeId);
    this.dropped.add(runtimeId);
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    return this.readers.subscribe(
      signal,
      this.options.client.closed.aborted ? createClosedError() : undefined,
    );
  }

  /**
   * Returns a promise that resolves when a refresh reports the end of the container. `cancel`
   * rejects it.
   */
  waitForExit(containerId: ContainerId): {
    readonly promise: Promise<ContainerStatus>;
    readonly cancel: () => void;
  } {
    let cancel = (): void => undefined;
    const promise = new Promise<ContainerStatus>((resolve, reject) => {
      const waiters = this.exitWaiters.get(containerId) ?? new Set();
      this.exitWaiters.set(containerId, waiters);
      const settle = (outcome: ContainerStatus | CloudlessError): void => {
        waiters.delete(settle);
        if (waiters.size === 0 && this.exitWaiters.get(containerId) === waiters)
          this.exitWaiters.delete(containerId);
        if (outcome instanceof CloudlessError) reject(outcome);
        else resolve(outcome);
      };
      waiters.add(settle);
      cancel = () => settle(createClosedError());
    });
    promise.catch(() => undefined); // a cancelled wait is not an error
    return { promise, cancel };
  }

  /** Fails all readers and waiting callers, which must list again. */
  fail(reason: CloudlessError): void {
    this.readers.fail(reason);
    for (const waiters of [...this.exitWaiters.values()])
      for (const settle of [...waiters]) settle(reason);
  }

  private async refreshAllNow(): Promise<void> {
    const { client, owner } = this.options;
    this.upserted.clear();
    this.dropped.clear();
    const { containers } = await client.callQuick('ListContainers', (calls, signal) =>
      calls.listContainers({ filter: { labelSelector: toOwnerSelector(owner) } }, { signal }),
    );
    const ours = containers.filter(
      ({ labels, state }) => isOwned(labels, owner) && state !== ContainerState.CONTAINER_CREATED,
    );
    const looked = await Promise.all(ours.map((container) => this.readContainer(container)));
    const before = this.known;
    const there = looked.filter(
      (each) => each !== undefined && !this.dropped.has(each.runtimeId),
    ) as readonly KnownContainer[];
    this.known = new Map(
      there.map((each) => [each.runtimeId, selectNewer(before.get(each.runtimeId), each)]),
    );
    for (const [runtimeId, known] of before) {
      if (this.upserted.has(runtimeId) && !this.known.has(runtimeId))
        this.known.set(runtimeId, known);
    }
    for (const { runtimeId, status } of this.known.values())
      this.emitChanges(before.get(runtimeId)?.status, status);
    for (const [runtimeId, { status }] of before)
      if (!this.known.has(runtimeId)) this.emitRemoval(status);
  }

  /** Reads the status of a container whose state has changed since the last refresh. */
  private async readContainer(container: Container): Promise<KnownContainer | undefined> {
    const before = this.known.get(container.id);
    if (before?.state === container.state) return before;
    const { id: runtimeId, podSandboxId: sandboxId, annotations } = container;
    const hasAddress = fromAnnotations(annotations).hostNetwork !== true;
    const [answer, ip] = await Promise.allSettled([
      this.readStatus(runtimeId),
      before?.ip || !hasAddress ? (before?.ip ?? '') : this.readSandboxIp(sandboxId),
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
      const containerId = readContainerId(container.labels);
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
  ): KnownContainer {
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
    { runtimeId, sandboxId, ip }: Pick<KnownContainer, 'runtimeId' | 'sandboxId' | 'ip'>,
    answer: ContainerStatusResponse,
    listed: ContainerState,
  ): KnownContainer {
    const status = toStatus(answer, ip, this.options.bootedAtMs);
    const memory = fromAnnotations(answer.status?.annotations ?? {});
    const hadProcess = status.pid !== undefined && processExists(status.pid);
    return {
      runtimeId,
      sandboxId,
      ip,
      state: answer.status?.state ?? listed,
      status,
      recorded: memory,
      hadProcess,
    };
  }

  private emitChanges(before: ContainerStatus | undefined, now: ContainerStatus): void {
    if (before === undefined)
      this.emit({ kind: 'started', status: now.phase === 'running' ? now : toRunning(now) });
    if (now.phase === 'exited' && before?.phase !== 'exited') this.emitExit(now);
  }

  /** Reports the end of a container that another program has removed while it ran. */
  private emitRemoval(last: ContainerStatus): void {
    if (last.phase === 'exited') return;
    const { pid: _pid, ip: _ip, ...rest } = last;
    const finishedAtMs = Math.max(last.startedAtMs, this.options.wallTime());
    this.emitExit({
      ...rest,
      phase: 'exited',
      finishedAtMs,
      exitCode: -1,
      reason: formatExitReason(-1),
    });
  }

  private emitExit(status: ContainerStatus): void {
    this.emit({ kind: 'exited', status });
    for (const settle of [...(this.exitWaiters.get(status.containerId) ?? [])]) settle(status);
  }

  private emit(event: ContainerEvent): void {
    this.readers.publish(event);
  }
}

/** Keeps a known end: the list may have been read before it. */
function selectNewer(known: KnownContainer | undefined, looked: KnownContainer): KnownContainer {
  return known?.status.phase === 'exited' && known.state !== UNREAD ? known : looked;
}

/**
 * Returns the running status of a container that ended before it was seen running, for its start
 * event.
 */
function toRunning({
  finishedAtMs: _f,
  exitCode: _e,
  reason: _r,
  ...rest
}: ContainerStatus): ContainerStatus {
  return { ...rest, phase: 'running' };
}
