import {
  definedFields,
  errorFields,
  errorMessageOf,
  type ContainerId,
  type Log,
} from '@cloudless/base';
import { readLastLines } from '../container/last-lines.js';
import type { QueuedStart } from '../container/start-queue.js';
import { findServices, isUncertain, startContainer } from './replica-containers.js';
import type { ReplicaHost } from './replica-host.js';
import type { ReplicaRunnerDeps } from './replica-runner-deps.js';
import type { ReplicaLease } from './replica-lease.js';
import { ReplicaPreparation } from './replica-preparation.js';

/** Starts the containers of one replica: image pull, start queue, call to the runtime. */
export class ContainerStarts {
  /** Image pull of the newest start. */
  private preparation: ReplicaPreparation | undefined;
  /** Position of the newest start in the start queue. */
  private queuedStart: QueuedStart | undefined;
  /** Id of the newest container for which the start call was made. */
  private attemptedId: ContainerId | undefined;

  constructor(
    private readonly host: ReplicaHost,
    private readonly lease: ReplicaLease,
    private readonly deps: ReplicaRunnerDeps,
    private readonly log: Log,
  ) {}

  /** Returns true after the start call for this container: the container may be running. */
  isAttempted(containerId: ContainerId | undefined): boolean {
    return containerId !== undefined && containerId === this.attemptedId;
  }

  /**
   * Obtains the secrets and configs of the replica and pulls its image, if it has any, then starts
   * the container in its turn. The start enters the start queue only after that: a slow registry
   * delays no other start.
   */
  prepareAndStart(containerId: ContainerId): void {
    const { restarts, failedStarts, target } = this.host.current;
    if (target?.usesImage !== true && target?.usesFiles !== true) return this.enqueue(containerId);
    const start = { containerId, restarts, failedStarts };
    this.preparation = new ReplicaPreparation(this.host.startOrder, start, this.deps, {
      onPull: (pull) => this.host.apply({ kind: 'pullChanged', containerId, pull }),
      onDone: () => this.enqueue(containerId),
      onFailed: (reason, pull) => {
        // One warning per cause, not per attempt.
        const level = this.host.current.reason.includes(errorMessageOf(reason)) ? 'debug' : 'warn';
        this.log[level]('container not prepared', { containerId, ...errorFields(reason) });
        this.host.apply({
          kind: 'startFailed',
          containerId,
          reason: errorMessageOf(reason),
          uncertain: this.isAttempted(containerId),
          unreachable: isUncertain(reason),
          ...definedFields({ pull }),
        });
      },
    });
  }

  /** Aborts the image pull of a start, or removes the start from the start queue. */
  cancel(): void {
    this.preparation?.cancel();
    this.queuedStart?.cancel();
  }

  /** Cancels a start that waits for its image or in the start queue when a stop is ordered. */
  cancelIfStopping(): void {
    const { activity, stop } = this.host.current;
    if (stop === undefined || activity.kind !== 'starting') return;
    if (this.preparation?.cancel() !== true && this.queuedStart?.cancel() !== true) return;
    this.endBeforeStart(activity.containerId);
  }

  /** Ends a start for which the runtime was not called, because a stop is ordered. */
  private endBeforeStart(containerId: ContainerId): void {
    this.host.apply({
      kind: 'startFailed',
      containerId,
      reason: 'stopped before the start',
      // An earlier attempt with this id may have started the container.
      uncertain: this.isAttempted(containerId),
    });
  }

  private enqueue(containerId: ContainerId): void {
    const { restarts, target } = this.host.current;
    this.queuedStart = this.deps.starts.add(
      restarts > 0 ? 'restart' : 'first',
      target?.usesImage === true ? 'container' : 'process',
      () => this.start(containerId),
    );
    if (this.queuedStart.isWaiting) this.host.apply({ kind: 'startQueued', containerId });
  }

  private async start(containerId: ContainerId): Promise<void> {
    if (!this.isAwaited(containerId)) return;
    const wasAttempted = this.isAttempted(containerId);
    try {
      const { startOrder } = this.host;
      const found = await findServices(startOrder, this.deps);
      if (!this.isAwaited(containerId)) return;
      if (this.host.current.stop !== undefined) return this.endBeforeStart(containerId);
      // Computed after the wait for services, which takes part of the time since the last contact.
      const lease = this.lease.computeLease();
      if (lease !== undefined && lease.leaseMs <= 0)
        return this.host.apply({ kind: 'outOfContact', containerId });
      this.lease.recordStart(containerId);
      this.attemptedId = containerId;
      const { restarts, failedStarts } = this.host.current;
      const start = { containerId, restarts, failedStarts, ...definedFields({ lease }) };
      const status = await startContainer(startOrder, start, found, this.deps);
      for (const problem of status.problems ?? [])
        this.log.warn('container started with a problem', { containerId, error: problem });
      this.host.onRunning(status);
      if (status.phase === 'exited') this.host.onExited(status);
    } catch (reason) {
      await this.handleFailure(containerId, reason, wasAttempted);
    }
  }

  /**
   * Returns true while the replica waits for the start of this container; false after the replica
   * was forgotten, the start was given up, or an event of the runtime has reported the start.
   */
  private isAwaited(containerId: ContainerId): boolean {
    const { activity } = this.host.current;
    return (
      !this.host.isClosed && activity.kind === 'starting' && activity.containerId === containerId
    );
  }

  /** @param wasAttempted - True when an earlier attempt may have started the container. */
  private async handleFailure(
    containerId: ContainerId,
    reason: unknown,
    wasAttempted: boolean,
  ): Promise<void> {
    this.log.warn('container not started', { containerId, ...errorFields(reason) });
    const unreachable = isUncertain(reason);
    const lastLines = unreachable
      ? []
      : await readLastLines(containerId, this.deps, this.host.signal);
    this.host.apply({
      kind: 'startFailed',
      containerId,
      reason: errorMessageOf(reason),
      uncertain: unreachable || wasAttempted,
      unreachable,
      lastLines,
    });
  }
}
