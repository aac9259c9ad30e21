import { errorKindOf, type Clock, type ContainerId, type Timer } from '@cloudless/base';
import type { ContainerStatus } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';
import type { Inventory } from './inventory.js';

/** A running stop, shared by all its callers. */
interface Stopping {
  killAt: number;
  timer: Timer | undefined;
  readonly failed: Promise<never>;
  readonly fail: (reason: unknown) => void;
}

/** A container, by its Cloudless id and by its id in the runtime. */
interface Target {
  readonly containerId: ContainerId;
  readonly runtimeId: string;
}

/**
 * Stops containers: SIGTERM through the runtime, SIGKILL at the end of the shortest grace period
 * that a caller has requested. Grace periods are timed here, because the interface has whole
 * seconds only.
 */
export class Stopper {
  private readonly stopping = new Map<ContainerId, Stopping>();

  constructor(
    private readonly client: CriClient,
    private readonly inventory: Inventory,
    private readonly clock: Clock,
  ) {}

  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    const { status, runtimeId } =
      this.inventory.find(containerId) ?? (await this.inventory.lookFor(containerId));
    if (status.phase === 'exited') return status;
    const ended = this.inventory.ended(containerId);
    const stopping = this.stopping.get(containerId) ?? this.begin(containerId, runtimeId, graceMs);
    this.hasten(stopping, { containerId, runtimeId }, graceMs);
    try {
      return await Promise.race([ended.promise, stopping.failed]);
    } finally {
      ended.cancel();
      this.forget(containerId, stopping);
    }
  }

  /**
   * Sends SIGTERM. The runtime gets a slightly longer grace period, so that it can finish the stop
   * when this agent dies meanwhile.
   */
  private begin(containerId: ContainerId, runtimeId: string, graceMs: number): Stopping {
    let fail = (_: unknown): void => undefined;
    const failed = new Promise<never>((_, reject) => (fail = reject));
    failed.catch(() => undefined);
    const stopping: Stopping = { killAt: Number.POSITIVE_INFINITY, timer: undefined, failed, fail };
    this.stopping.set(containerId, stopping);
    if (graceMs > 0)
      void this.ask(stopping, { containerId, runtimeId }, Math.ceil(graceMs / 1_000) + 1, graceMs);
    return stopping;
  }

  private hasten(stopping: Stopping, target: Target, graceMs: number): void {
    const killAt = this.clock.now() + Math.max(0, graceMs);
    if (killAt >= stopping.killAt) return;
    stopping.killAt = killAt;
    stopping.timer?.cancel();
    stopping.timer = this.clock.setTimer(
      Math.max(0, graceMs),
      () => void this.ask(stopping, target, 0, 0),
    );
  }

  private async ask(
    stopping: Stopping,
    { containerId, runtimeId }: Target,
    seconds: number,
    waitsMs: number,
  ): Promise<void> {
    try {
      await this.client
        .slow(
          'StopContainer',
          (calls, signal) =>
            calls.stopContainer({ containerId: runtimeId, timeout: BigInt(seconds) }, { signal }),
          waitsMs,
        )
        .catch((reason: unknown) => {
          if (errorKindOf(reason) !== 'notFound') throw reason;
        });
      const known = this.inventory.find(containerId);
      const now = known === undefined ? undefined : await this.inventory.refresh(known);
      if (now?.status.phase !== 'exited') await this.inventory.look();
    } catch (reason) {
      stopping.fail(reason);
    }
  }

  private forget(containerId: ContainerId, stopping: Stopping): void {
    stopping.timer?.cancel();
    if (this.stopping.get(containerId) === stopping) this.stopping.delete(containerId);
  }
}
