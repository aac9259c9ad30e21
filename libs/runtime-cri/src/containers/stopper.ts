import {
  errorKindOf,
  errorMessageOf,
  sleep,
  type Clock,
  type ContainerId,
  type Timer,
} from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';
import type { ContainerInventory } from './inventory.js';

/** A running stop, shared by all its callers. */
interface RunningStop {
  /** Monotonic time of SIGKILL. */
  killAtMs: number;
  timer: Timer | undefined;
  /** Rejects when a call to the container runtime fails; never resolves. */
  readonly failed: Promise<never>;
  readonly fail: (reason: unknown) => void;
}

/** A container, by its Cloudless id and by its id in the runtime. */
interface StopTarget {
  readonly containerId: ContainerId;
  readonly runtimeId: string;
}

/**
 * Stops containers: SIGTERM through the container runtime, then SIGKILL at the end of the shortest
 * grace period that a caller has requested. This class measures the grace periods itself, because
 * the Container Runtime Interface accepts only whole seconds.
 */
export class Stopper {
  private readonly runningStops = new Map<ContainerId, RunningStop>();

  constructor(
    private readonly client: CriClient,
    private readonly inventory: ContainerInventory,
    private readonly clock: Clock,
  ) {}

  /**
   * Stops a container and waits for its end.
   * @param graceMs - Grace period in milliseconds; 0 or less sends SIGKILL at once, without
   *   SIGTERM.
   * @returns The status of the exited container, also when the container had exited before.
   * @throws kind `notFound` for an unknown container; the errors of the runtime.
   */
  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    const { status, runtimeId } =
      this.inventory.find(containerId) ?? (await this.inventory.refreshAndFind(containerId));
    if (status.phase === 'exited') return status;
    const ended = this.inventory.waitForExit(containerId);
    const stopping =
      this.runningStops.get(containerId) ?? this.beginStop(containerId, runtimeId, graceMs);
    this.shortenGrace(stopping, { containerId, runtimeId }, graceMs);
    try {
      return await Promise.race([ended.promise, stopping.failed]);
    } finally {
      ended.cancel();
      this.forget(containerId, stopping);
    }
  }

  /**
   * Begins a stop, and sends SIGTERM when there is a grace period. The runtime gets a grace period
   * that is 1 to 2 s longer, so that the runtime finishes the stop when this agent is killed before
   * it sends SIGKILL.
   */
  private beginStop(containerId: ContainerId, runtimeId: string, graceMs: number): RunningStop {
    let fail = (_: unknown): void => undefined;
    const failed = new Promise<never>((_, reject) => (fail = reject));
    failed.catch(() => undefined);
    const stopping: RunningStop = {
      killAtMs: Number.POSITIVE_INFINITY,
      timer: undefined,
      failed,
      fail,
    };
    this.runningStops.set(containerId, stopping);
    if (graceMs > 0)
      void this.requestStop(
        stopping,
        { containerId, runtimeId },
        Math.ceil(graceMs / 1_000) + 1, // grace period for the runtime, in seconds
        graceMs, // added to the timeout of the call
      );
    return stopping;
  }

  /** Moves SIGKILL to an earlier time; a later time changes nothing. */
  private shortenGrace(stopping: RunningStop, target: StopTarget, graceMs: number): void {
    const killAtMs = this.clock.now() + Math.max(0, graceMs);
    if (killAtMs >= stopping.killAtMs) return;
    stopping.killAtMs = killAtMs;
    stopping.timer?.cancel();
    stopping.timer = this.clock.setTimer(
      Math.max(0, graceMs),
      () => void this.requestStop(stopping, target, 0, 0), // SIGKILL
    );
  }

  /**
   * Calls StopContainer, and refreshes the inventory, which resolves the waiting callers.
   * @param graceSeconds - Whole seconds between SIGTERM and SIGKILL; 0 sends only SIGKILL.
   * @param extraMs - Milliseconds to add to the timeout of the call.
   */
  private async requestStop(
    stopping: RunningStop,
    { containerId, runtimeId }: StopTarget,
    graceSeconds: number,
    extraMs: number,
  ): Promise<void> {
    try {
      await this.callStopContainer(runtimeId, graceSeconds, extraMs);
      const known = this.inventory.find(containerId);
      const refreshed = known === undefined ? undefined : await this.inventory.refreshOne(known);
      if (refreshed?.status.phase !== 'exited') await this.inventory.refreshAll();
    } catch (reason) {
      stopping.fail(reason);
    }
  }

  /** Calls StopContainer, and repeats the call while the end of the container interferes. */
  private async callStopContainer(
    containerId: string,
    graceSeconds: number,
    extraMs: number,
  ): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.client.callSlow(
          'StopContainer',
          (calls, signal) =>
            calls.stopContainer({ containerId, timeout: BigInt(graceSeconds) }, { signal }),
          extraMs,
        );
        return;
      } catch (reason) {
        if (errorKindOf(reason) === 'notFound') return;
        if (attempt === MAX_ATTEMPTS || !SHIM_CLOSED.test(errorMessageOf(reason))) throw reason;
        await sleep(this.clock, RETRY_MS);
      }
    }
  }

  private forget(containerId: ContainerId, stopping: RunningStop): void {
    stopping.timer?.cancel();
    if (this.runningStops.get(containerId) === stopping) this.runningStops.delete(containerId);
  }
}

/**
 * Message of containerd when the shim of the container exits during the call, because the container
 * has just ended. containerd records the end shortly after; then StopContainer succeeds.
 */
const SHIM_CLOSED = /ttrpc: closed/;
const MAX_ATTEMPTS = 10;
const RETRY_MS = 100;
