import {
  CloudlessError,
  errorFields,
  errorMessageOf,
  sleep,
  type Clock,
  type ContainerId,
  type Log,
} from '@cloudless/base';
import type { Sandboxes } from './sandboxes.js';

/** Arguments of {@link removeAllContainers}. */
export interface RemoveAllOptions {
  readonly sandboxes: Sandboxes;
  /** Resolves when no container is being started any more; no start may begin after the call. */
  readonly starts: Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  /** Time limit in milliseconds. */
  readonly limitMs: number;
}

/** Number of containers that are removed in parallel: a removal mostly waits for the runtime. */
const PARALLEL_REMOVALS = 8;
/** Delay before the next attempt after a failure. */
const RETRY_MS = 500;

/**
 * Kills and removes everything of this owner: containers in any state, sandboxes and logs. Failed
 * removals are repeated until the time limit.
 * @throws kind `deadline` with the number of remaining containers and the last failure.
 */
export async function removeAllContainers({
  sandboxes,
  starts,
  clock,
  log,
  limitMs,
}: RemoveAllOptions): Promise<void> {
  let remaining: readonly ContainerId[] = [];
  let lastFailure: unknown;
  const limit = new AbortController();
  const removeAll = async (): Promise<void> => {
    let haveStartsEnded = false;
    while (!limit.signal.aborted) {
      try {
        remaining = await sandboxes.listContainerIds();
        if (remaining.length === 0) {
          if (haveStartsEnded) return;
          // List once more afterwards: the last starts may have created containers.
          await starts;
          haveStartsEnded = true;
          continue;
        }
        log.info('removing containers', { count: remaining.length });
        await forEachParallel(remaining, (containerId) => sandboxes.removeAllOf(containerId));
      } catch (reason) {
        lastFailure = reason;
        log.warn('containers not removed, trying again', errorFields(reason));
        await sleep(clock, RETRY_MS, limit.signal).catch(() => undefined);
      }
    }
  };
  const timeout = sleep(clock, limitMs, limit.signal).then(() => {
    const cause =
      lastFailure === undefined
        ? 'the container runtime is slow or stuck: see its log'
        : errorMessageOf(lastFailure);
    const subject =
      remaining.length === 0
        ? 'the containers of this node'
        : `${remaining.length} containers of this node`;
    throw new CloudlessError(
      'deadline',
      `${subject} were not removed within ${limitMs} ms: ${cause}`,
      { cause: lastFailure },
    );
  });
  timeout.catch(() => undefined);
  try {
    await Promise.race([removeAll(), timeout]);
  } finally {
    limit.abort();
  }
}

/**
 * Runs an action for all items, {@link PARALLEL_REMOVALS} in parallel.
 * @throws The first failure, after all items were tried.
 */
async function forEachParallel<Item>(
  items: readonly Item[],
  action: (item: Item) => Promise<void>,
): Promise<void> {
  const remaining = items[Symbol.iterator](); // shared by all workers
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    for (const item of remaining)
      await action(item).catch((reason: unknown) => failures.push(reason));
  };
  await Promise.all(Array.from({ length: PARALLEL_REMOVALS }, worker));
  if (failures.length > 0) throw failures[0];
}
