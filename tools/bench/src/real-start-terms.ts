// The parameters that are the same for every side of real-start.

/** `pod`: each container has its own network. `host`: the network of the machine. */
export type NetworkKind = 'pod' | 'host';

/** The durations of one measurement in milliseconds. */
export interface Figures {
  /** From the request until all containers run. */
  readonly createMs: number;
  /** From the request for the other image until all containers run it. */
  readonly updateMs: number;
  /**
   * From kill -9 of a main process until another container runs in its place; one container after
   * the other.
   */
  readonly recoverMs: readonly number[];
  /** From the request until no container exists. */
  readonly removeMs: number;
  /** CPU time of the involved processes during the creation, milliseconds of one core. */
  readonly createCpuMs?: Readonly<Record<string, number>>;
}

/** A system that real-start measures. */
export interface Side {
  readonly name: string;
  /**
   * Starts `count` containers, updates them, kills some of them, and removes all. Removes them even
   * after a failure.
   */
  measure(count: number, network: NetworkKind): Promise<Figures>;
  close(): Promise<void>;
}

/** The image and its update: the same files except for the version. */
export const IMAGES = ['cloudless/test:1', 'cloudless/test:2'] as const;
/**
 * A program that does not listen, so that any number of containers fits on the host network. The
 * program exits at SIGTERM at once. The containers declare no port.
 */
export const COMMAND = ['/bin/sh', '-c', 'trap "exit 0" TERM; sleep 86400 & wait'];
/** Grace period between SIGTERM and SIGKILL, milliseconds. */
export const GRACE_MS = 10_000;
/** Number of parallel bare calls. More calls are not faster on two cores. */
export const CONCURRENCY = 4;
/** Number of containers that an update replaces in parallel; the old container is stopped first. */
export const UPDATE_PARALLELISM = 4;
/** Number of containers that are killed, one after the other. */
export const KILLS = 5;

/** Runs an action for each item with limited parallelism. */
export async function runForEach<Item>(
  items: readonly Item[],
  limit: number,
  action: (item: Item) => Promise<void>,
): Promise<void> {
  const remaining = items.values();
  const runWorker = async (): Promise<void> => {
    for (const item of remaining) await action(item); // All workers share one iterator.
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, runWorker));
}
