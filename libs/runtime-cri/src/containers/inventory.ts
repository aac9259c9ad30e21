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

/** One container of ours, as the newest list showed it. */
export interface Known {
  readonly runtimeId: string;
  readonly sandboxId: string;
  readonly state: ContainerState;
  /** Empty in the network of the machine. */
  readonly ip: string;
  readonly status: ContainerStatus;
  readonly memory: Memory;
  /**
   * Whether the main process was visible when the status was read: an agent may not see the
   * processes of containers.
   */
  readonly hadProcess: boolean;
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

const NANOS_PER_MS = 1_000_000n;
/**
 * Of a container that could not be read so far; no list shows it, as {@link Inventory} leaves out
 * those that were never started.
 */
const UNREAD = ContainerState.CONTAINER_CREATED;

/**
 * What runs here and is ours. Every look asks the runtime; what differs from the look before
 * becomes events. So lists and events are one: what a list shows, the events have told.
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
  /** Since the look that runs began, or the one before: it may have read its list already. */
  private readonly learned = new Set<string>();
  private readonly dropped = new Set<string>();

  constructor(private readonly options: InventoryOptions) {}

  /** Whether somebody waits for what happens. */
  get isWatched(): boolean {
    return !this.readers.isEmpty || this.waiting.size > 0;
  }

  /** As of the newest look. */
  all(): readonly Known[] {
    return [...this.known.values()];
  }

  /** As of the newest look. */
  find(containerId: ContainerId): Known | undefined {
    return this.all().find(({ status }) => status.containerId === containerId);
  }

  /** Containers that were running at the newest look, and whose main process no longer exists. */
  withoutProcess(): readonly ContainerId[] {
    return this.all().flatMap(({ hadProcess, status: { containerId, phase, pid } }) =>
      hadProcess && phase === 'running' && pid !== undefined && !isThere(pid) ? [containerId] : [],
    );
  }

  /** Looks anew, then finds. @throws kind `notFound`. */
  async lookFor(containerId: ContainerId): Promise<Known> {
    await this.look();
    const found = this.find(containerId);
    if (found === undefined)
      throw new CloudlessError('notFound', `container ${containerId} is not on this node`);
    return found;
  }

  /**
   * Asks the runtime; what it answers is not older than this call. @throws kind `unavailable` when
   * it does not answer.
   */
  look(): Promise<void> {
    if (this.looking === undefined) {
      this.looking = this.lookNow().finally(() => (this.looking = undefined));
      return this.looking;
    }
    // The look that runs may have read already what changed since: one more, shared by all who ask
    // meanwhile.
    this.nextLook ??= this.looking
      .catch(() => undefined)
      .then(() => {
        this.nextLook = undefined;
        return this.look();
      });
    return this.nextLook;
  }

  /**
   * What {@link Inventory.learn} needs: the runtime's word on one container, and the address of its
   * sandbox.
   */
  statusOf(runtimeId: string): Promise<ContainerStatusResponse> {
    return this.options.client.quick('ContainerStatus', (calls, signal) =>
      calls.containerStatus({ containerId: runtimeId, verbose: true }, { signal }),
    );
  }

  /**
   * Process id of the sandbox's own process; undefined when the container runtime does not report
   * it.
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
   * Takes in a container that was just started, without asking for all the others. What a look has
   * seen since is newer.
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
   * Asks whether a container has ended, without asking for all the others. @returns Undefined when
   * it is gone: a look tells of that.
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
    // a look was quicker
    if (before === undefined || before.status.phase === 'exited') return before;
    if (answer.status?.state !== ContainerState.CONTAINER_EXITED) return before;
    const now = this.toKnown(known, answer, ContainerState.CONTAINER_EXITED);
    this.known.set(runtimeId, now);
    this.tell(before.status, now.status);
    return now;
  }

  /** A container that had ended was removed by us: nobody is told. */
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

  /** Resolves when the container has ended, as looks show it. */
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
    promise.catch(() => undefined); // a wait that was given up is nobody's failure
    return { promise, cancel };
  }

  /** The runtime went away: who listens must list anew. */
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

  /** What did not change since the last look is not asked for again. */
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
      this.options.log.warn('container not readable', { containerId, ...errorFields(failures[0]) });
    }
    return before ?? this.fromList(container, answer, ip);
  }

  /**
   * One that was never read is there all the same: what the list tells must do until the next look
   * asks again.
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

  /** Somebody else took it away while it ran. */
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

/** A look may have read its list before the end of a container that is known by now. */
function laterOf(known: Known | undefined, looked: Known): Known {
  return known?.status.phase === 'exited' && known.state !== UNREAD ? known : looked;
}

/** A container that ended before anybody saw it run has run all the same. */
function asRunning({
  finishedAtMs: _f,
  exitCode: _e,
  reason: _r,
  ...rest
}: ContainerStatus): ContainerStatus {
  return { ...rest, phase: 'running' };
}
