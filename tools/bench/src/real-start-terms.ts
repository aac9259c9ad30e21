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
  /** From the request until no container is left. */
  readonly removeMs: number;
  /** CPU time of the involved processes during the creation, milliseconds of one core. */
  readonly createCpuMs?: Readonly<Record<string, number>>;
}

/** A system under measurement. */
export interface Side {
  readonly name: string;
  /**
   * Starts `count` containers, updates them, kills some, removes them. Cleans up even after a
   * failure.
   */
  measure(count: number, network: NetworkKind): Promise<Figures>;
  close(): Promise<void>;
}

/** The image and its update: the same files except for the version. */
export const IMAGES = ['cloudless/test:1', 'cloudless/test:2'] as const;
/**
 * A program that does not listen, so that any number of them fits on the host network; exits at
 * SIGTERM at once. No port is declared.
 */
export const COMMAND = ['/bin/sh', '-c', 'trap "exit 0" TERM; sleep 86400 & wait'];
/** Grace period between SIGTERM and SIGKILL. */
export const GRACE_MS = 10_000;
/** Number of parallel bare calls; more is not faster on two cores. */
export const CONCURRENCY = 4;
/** Number of containers replaced in parallel; the old one is stopped first. */
export const UPDATE_PARALLELISM = 4;
/** Number of containers killed, one after the other. */
export const KILLS = 5;

/** Runs an action for each item with limited parallelism. */
export async function runForEach<Item>(
  items: readonly Item[],
  limit: number,
  action: (item: Item) => Promise<void>,
): Promise<void> {
  const left = items.values();
  const runWorker = async (): Promise<void> => {
    for (const item of left) await action(item); // all workers share one iterator
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, runWorker));
}
