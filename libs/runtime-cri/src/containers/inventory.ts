import { create } from '@bufbuild/protobuf';
import {
  CloudlessError,
  errorFields,
  errorKindOf,
  type ContainerId,
  type Log,
  type StopSignal,
} from '@cloudless/base';
import {
  EventBroadcaster,
  formatExitReason,
  type ContainerEvent,
  type ContainerStatus,
} from '@cloudless/runtime';
import { createClosedError, type CriClient } from '../client/cri-client.js';
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
import { toNanos } from './nanoseconds.js';
import { parsePid, toStatus, wasNeverStarted } from './to-status.js';

/** A container of the owner, which is one agent, as of the newest refresh. */
export interface KnownContainer {
  /** Id of the container in the container runtime. */
  readonly runtimeId: string;
  /** Id of the sandbox in the container runtime. */
  readonly sandboxId: string;
  /** State that the runtime reported; a status is read again only when the state has changed. */
  readonly state: ContainerState;
  /** IP address of the sandbox; empty in the network of the machine. */
  readonly ip: string;
  readonly status: ContainerStatus;
  /** Parts of the request, from the annotation of the container. */
  readonly recorded: RecordedRequest;
  /**
   * True when the main process was visible when the status was read. An agent in a pid namespace of
   * its own does not see the processes of containers.
   */
  readonly hadProcess: boolean;
}

/** Arguments of {@link ContainerInventory}. */
export interface InventoryOptions {
  readonly client: CriClient;
  readonly owner: Owner;
  readonly log: Log;
  /** Boot time of the machine, wall-clock milliseconds. */
  readonly bootedAtMs: number;
  /** Returns the current wall-clock time in milliseconds. */
  readonly wallTime: () => number;
}

/**
 * State of a {@link KnownContainer} whose status could not be read yet. A refresh skips listed
 * containers in this state, because they were never started. For the next refresh, the listed state
 * therefore differs from the known state, so that the status is read.
 */
const UNREAD = ContainerState.CONTAINER_CREATED;

/**
 * Containers of one agent (the owner) on the container runtime; not the inventory message of a
 * session. Every refresh lists the containers, and the differences from the previous list become
 * events. Lists and events therefore agree: an event reports each container before a list contains
 * the container.
 */
export class ContainerInventory {
  /** Containers by their id in the runtime. */
  private known = new Map<string, KnownContainer>();
  private readonly readers = new EventBroadcaster();
  private readonly exitWaiters = new Map<
    ContainerId,
    Set<(outcome: ContainerStatus | CloudlessError) => void>
  >();
  private runningRefresh: Promise<void> | undefined;
  private nextRefresh: Promise<void> | undefined;
  /**
   * Runtime ids of the containers that were added or dropped since the running refresh began. Its
   * list may be older than these changes, which therefore take precedence.
   */
  private readonly added = new Set<string>();
  private readonly dropped = new Set<string>();

  constructor(private readonly options: InventoryOptions) {}

  /** True while a caller reads events or waits for the exit of a container. */
  get isWatched(): boolean {
    return !this.readers.isEmpty || this.exitWaiters.size > 0;
  }

  /** Returns all containers, as of the newest refresh. */
  list(): readonly KnownContainer[] {
    return [...this.known.values()];
  }

  /** Returns a container, as of the newest refresh; undefined when it is unknown. */
  find(containerId: ContainerId): KnownContainer | undefined {
    return this.list().find(({ status }) => status.containerId === containerId);
  }

  /**
   * Returns the containers that were running at the newest refresh and whose main process no longer
   * exists. Containers whose processes this agent does not see are not included.
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
   * Lists all containers and reports the differences as events. Resolves when the inventory is not
   * older than this call.
   * @throws kind `unavailable` when the runtime does not answer.
   */
  refreshAll(): Promise<void> {
    if (this.runningRefresh === undefined) {
      this.runningRefresh = this.refreshAllNow().finally(() => (this.runningRefresh = undefined));
      return this.runningRefresh;
    }
    // The running refresh may have read its list before this call. All callers that arrive while it
    // runs share one refresh after it.
    this.nextRefresh ??= this.runningRefresh
      .catch(() => undefined)
      .then(() => {
        this.nextRefresh = undefined;
        return this.refreshAll();
      });
    return this.nextRefresh;
  }

  /**
   * Reads the verbose status of one container, without a change of the inventory.
   * @throws kind `notFound` when the runtime has no such container.
   */
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

  /** Reads the IP address of the sandbox; empty when the sandbox has none. */
  async readSandboxIp(podSandboxId: string): Promise<string> {
    const { status } = await this.options.client.callQuick('PodSandboxStatus', (calls, signal) =>
      calls.podSandboxStatus({ podSandboxId }, { signal }),
    );
    return status?.network?.ip ?? '';
  }

  /**
   * Adds a container that was just started, without a list of all containers. Does not change a
   * container that a refresh has added meanwhile.
   * @param answer - Verbose status of the container.
   * @returns The status that the inventory now contains.
   */
  addStarted(
    identity: Pick<KnownContainer, 'runtimeId' | 'sandboxId' | 'ip'>,
    answer: ContainerStatusResponse,
  ): ContainerStatus {
    const before = this.known.get(identity.runtimeId);
    if (before !== undefined) return before.status;
    const known = this.toKnown(identity, answer, ContainerState.CONTAINER_RUNNING);
    this.added.add(identity.runtimeId);
    this.known.set(identity.runtimeId, known);
    this.emitChanges(undefined, known.status);
    return known.status;
  }

  /**
   * Reads one container, without a list of all containers, and reports its exit if it has exited.
   * @returns The container; undefined when it was removed. {@link ContainerInventory.refreshAll}
   *   reports a removal by another program.
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
    // A concurrent refresh or removal has already recorded the end.
    if (before === undefined || before.status.phase === 'exited') return before;
    if (answer.status?.state !== ContainerState.CONTAINER_EXITED) return before;
    const exited = this.toKnown(known, answer, ContainerState.CONTAINER_EXITED);
    this.known.set(runtimeId, exited);
    this.emitChanges(before.status, exited.status);
    return exited;
  }

  /** Removes a container that this agent has removed from the runtime. Reports no event. */
  drop({ runtimeId }: KnownContainer): void {
    this.known.delete(runtimeId);
    this.dropped.add(runtimeId);
  }

  /**
   * Reports the events from now on until `signal` is aborted, see `ContainerRuntime.events`.
   * Reading fails with kind `unavailable` when the runtime is closed or does not answer.
   */
  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    return this.readers.subscribe(
      signal,
      this.options.client.closed.aborted ? createClosedError() : undefined,
    );
  }

  /**
   * Waits for the exit of a container.
   * @returns `promise` resolves with the status when a refresh reports the exit, and rejects when
   *   the runtime does not answer. Call `cancel` to end the wait, also after the promise has
   *   settled.
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
    promise.catch(() => undefined); // no caller may wait any more when the promise rejects
    return { promise, cancel };
  }

  /** Fails all readers of events and waiting callers. They must list the containers again. */
  fail(reason: CloudlessError): void {
    this.readers.fail(reason);
    for (const waiters of [...this.exitWaiters.values()])
      for (const settle of [...waiters]) settle(reason);
  }

  /**
   * Makes one refresh. Calls do not overlap: {@link ContainerInventory.refreshAll} makes them one by
   * one.
   */
  private async refreshAllNow(): Promise<void> {
    const { client, owner } = this.options;
    this.added.clear();
    this.dropped.clear();
    const { containers } = await client.callQuick('ListContainers', (calls, signal) =>
      calls.listContainers({ filter: { labelSelector: toOwnerSelector(owner) } }, { signal }),
    );
    const owned = containers.filter(
      ({ labels, state }) => isOwned(labels, owner) && state !== ContainerState.CONTAINER_CREATED,
    );
    const read = await Promise.all(owned.map((container) => this.readContainer(container)));
    const before = this.known;
    const present = read.flatMap((each) =>
      each === undefined || this.dropped.has(each.runtimeId) ? [] : [each],
    );
    this.known = new Map(
      present.map((each) => [each.runtimeId, selectNewer(before.get(each.runtimeId), each)]),
    );
    for (const [runtimeId, known] of before) {
      if (this.added.has(runtimeId) && !this.known.has(runtimeId)) this.known.set(runtimeId, known);
    }
    for (const { runtimeId, status } of this.known.values())
      this.emitChanges(before.get(runtimeId)?.status, status);
    for (const [runtimeId, { status }] of before)
      if (!this.known.has(runtimeId)) this.emitRemoval(status);
  }

  /**
   * Reads the status of a listed container whose state has changed since the last refresh.
   * @returns The known container when its state is unchanged, or when its status cannot be read;
   *   undefined when the container was removed meanwhile or was never started.
   * @throws kind `unavailable` when the runtime does not answer.
   */
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
    // The container was removed meanwhile.
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
   * Builds the entry of a container whose status or address could not be read, from the parts that
   * are known. The next refresh reads the container again.
   */
  private fromList(
    { id: runtimeId, podSandboxId: sandboxId, labels, annotations, state, createdAt }: Container,
    answer: PromiseSettledResult<ContainerStatusResponse>,
    ip: PromiseSettledResult<string>,
  ): KnownContainer {
    const finishedAt = toNanos(this.options.wallTime());
    const listed = {
      labels,
      annotations,
      state,
      createdAt,
      finishedAt,
      exitCode: -1,
      reason: 'Unknown',
    };
    const status =
      answer.status === 'fulfilled'
        ? answer.value
        : create(ContainerStatusResponseSchema, { status: listed });
    const identity = { runtimeId, sandboxId, ip: ip.status === 'fulfilled' ? ip.value : '' };
    return { ...this.toKnown(identity, status, state), state: UNREAD };
  }

  private toKnown(
    { runtimeId, sandboxId, ip }: Pick<KnownContainer, 'runtimeId' | 'sandboxId' | 'ip'>,
    answer: ContainerStatusResponse,
    listedState: ContainerState,
  ): KnownContainer {
    const status = toStatus(answer, ip, this.options.bootedAtMs);
    const hadProcess = status.pid !== undefined && processExists(status.pid);
    return {
      runtimeId,
      sandboxId,
      ip,
      state: answer.status?.state ?? listedState,
      status,
      recorded: fromAnnotations(answer.status?.annotations ?? {}),
      hadProcess,
    };
  }

  private emitChanges(before: ContainerStatus | undefined, after: ContainerStatus): void {
    if (before === undefined)
      this.emit({ kind: 'started', status: after.phase === 'running' ? after : toRunning(after) });
    if (after.phase === 'exited' && before?.phase !== 'exited') this.emitExit(after);
  }

  /** Reports the exit of a container that another program has removed while it ran. */
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

/**
 * Returns the known entry when its exit was already recorded: `read` may be older than the exit.
 */
function selectNewer(known: KnownContainer | undefined, read: KnownContainer): KnownContainer {
  return known?.status.phase === 'exited' && known.state !== UNREAD ? known : read;
}

/**
 * Returns the status for the `started` event of a container that had already exited at its first
 * refresh.
 */
function toRunning({
  finishedAtMs: _f,
  exitCode: _e,
  reason: _r,
  ...rest
}: ContainerStatus): ContainerStatus {
  return { ...rest, phase: 'running' };
}
