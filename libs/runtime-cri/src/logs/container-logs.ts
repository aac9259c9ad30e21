import path from 'node:path';
import {
  errorFields,
  errorKindOf,
  sleep,
  type Clock,
  type ContainerId,
  type Log,
  type StopSignal,
} from '@cloudless/base';
import type { ContainerStatus, LogBatch, LogRequest } from '@cloudless/runtime';
import { createClosedError, type CriClient } from '../client/cri-client.js';
import type { ContainerInventory, KnownContainer } from '../containers/inventory.js';
import type { Watcher } from '../containers/watcher.js';
import { readLog } from './log-reader.js';
import { isSmall, rotateLog } from './log-rotation.js';

/** Arguments of {@link ContainerLogs}. */
export interface ContainerLogsOptions {
  readonly client: CriClient;
  readonly inventory: ContainerInventory;
  readonly watcher: Watcher;
  /** Absolute path of the directory that contains one directory per container. */
  readonly directory: string;
  /** Number of files that are kept per container, including the current file. */
  readonly files: number;
  /** Size in bytes above which a file is rotated. */
  readonly fileBytes: number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Delay between the exit of a container and the end of its log: a runtime may write the last lines
 * after it has reported the exit.
 */
const LAST_LINES_DELAY_MS = 150;
/** Interval in which a follower retries while the container runtime is unreachable. */
const UNREACHABLE_RETRY_MS = 500;

/** Reads and rotates the logs of all containers. */
export class ContainerLogs {
  /** Containers whose log is being rotated. */
  private readonly rotating = new Set<ContainerId>();
  /**
   * Containers whose log has no unfinished rotation. Only the size of the current file decides
   * about the next rotation.
   */
  private readonly rotated = new Set<ContainerId>();

  constructor(private readonly options: ContainerLogsOptions) {}

  /**
   * Reads a log, see `ContainerRuntime.logBatches`. A follower continues while the container
   * runtime is unreachable.
   * @throws kind `notFound` for an unknown container, `unavailable` when the client is closed.
   */
  async *read(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncGenerator<LogBatch> {
    const { client, inventory, directory } = this.options;
    if (client.closed.aborted) throw createClosedError();
    const { status } = inventory.find(containerId) ?? (await inventory.refreshAndFind(containerId));
    const isComplete = status.phase === 'exited';
    if (isComplete) await this.waitForLastLines(status);
    const stop = new AbortController();
    const end = (): void => stop.abort();
    if (signal.aborted) end();
    signal.addEventListener('abort', end, { once: true });
    client.closed.addEventListener('abort', end, { once: true });
    try {
      const completed = (): Promise<void> => this.waitUntilComplete(containerId, stop.signal);
      yield* readLog({
        directory: path.join(directory, containerId),
        request,
        signal: stop.signal,
        isComplete,
        waitUntilComplete: completed,
      });
    } finally {
      end();
      signal.removeEventListener('abort', end);
      client.closed.removeEventListener('abort', end);
    }
    if (client.closed.aborted && !signal.aborted) throw createClosedError();
  }

  /** Rotates the logs of running containers that have exceeded their size. Failures are logged. */
  async rotateAll(): Promise<void> {
    const running = this.options.inventory
      .list()
      .filter(({ status }) => status.phase === 'running');
    const ids = new Set(running.map(({ status }) => status.containerId));
    for (const containerId of this.rotated)
      if (!ids.has(containerId)) this.rotated.delete(containerId);
    await Promise.all(
      running
        .filter(({ status }) => this.needsRotation(status.containerId))
        .map((each) => this.rotate(each)),
    );
  }

  private needsRotation(containerId: ContainerId): boolean {
    if (this.rotating.has(containerId)) return false;
    const { directory, fileBytes } = this.options;
    return !this.rotated.has(containerId) || !isSmall(path.join(directory, containerId), fileBytes);
  }

  private async rotate({ runtimeId, status: { containerId } }: KnownContainer): Promise<void> {
    const { client, clock, log, directory, files, fileBytes } = this.options;
    const reopen = async (): Promise<void> => {
      await client.callQuick('ReopenContainerLog', (calls, signal) =>
        calls.reopenContainerLog({ containerId: runtimeId }, { signal }),
      );
    };
    this.rotating.add(containerId);
    this.rotated.delete(containerId);
    try {
      await rotateLog({
        directory: path.join(directory, containerId),
        fileBytes,
        files,
        clock,
        reopen,
      });
      this.rotated.add(containerId);
    } catch (reason) {
      // The next run tries again when the runtime is unreachable. A removed container has no log.
      if (
        errorKindOf(reason) !== 'unavailable' &&
        this.options.inventory.find(containerId) !== undefined
      ) {
        log.warn('log not rotated', { containerId, ...errorFields(reason) });
      }
    } finally {
      this.rotating.delete(containerId);
    }
  }

  /**
   * Resolves when the container has ended and its last lines are in the files, or when it was
   * removed.
   */
  private async waitUntilComplete(containerId: ContainerId, signal: AbortSignal): Promise<void> {
    const { inventory, watcher, clock } = this.options;
    while (!signal.aborted) {
      const wait = inventory.waitForExit(containerId);
      signal.addEventListener('abort', wait.cancel, { once: true });
      watcher.wake();
      try {
        const { status } = await inventory.refreshAndFind(containerId);
        return await this.waitForLastLines(status.phase === 'exited' ? status : await wait.promise);
      } catch (reason) {
        if (errorKindOf(reason) === 'notFound' || signal.aborted) return;
        if (errorKindOf(reason) !== 'unavailable') throw reason;
        await sleep(clock, UNREACHABLE_RETRY_MS, signal).catch(() => undefined);
      } finally {
        wait.cancel();
        signal.removeEventListener('abort', wait.cancel);
      }
    }
  }

  private async waitForLastLines({ finishedAtMs = 0 }: ContainerStatus): Promise<void> {
    const { clock } = this.options;
    const leftMs = finishedAtMs + LAST_LINES_DELAY_MS - clock.wallTime();
    if (leftMs > 0) await sleep(clock, Math.min(leftMs, LAST_LINES_DELAY_MS));
  }
}
