// What every side of real-start is asked for, alike.

/** `pod`: a network of its own for each container. `host`: the machine's. */
export type NetworkKind = 'pod' | 'host';

/** One measurement, milliseconds. */
export interface Figures {
  /** From the request until all run. */
  readonly createMs: number;
  /** From the request for the other image until all run it and none of the old one. */
  readonly updateMs: number;
  /**
   * From kill -9 of a main process until another container runs in its place; one after the other.
   */
  readonly recoverMs: readonly number[];
  /** From the request until no container is left. */
  readonly removeMs: number;
  /** Processor time of processes of ours during the creation, milliseconds of one core. */
  readonly createCpuMs?: Readonly<Record<string, number>>;
}

/** What can be measured. */
export interface Side {
  readonly name: string;
  /**
   * Starts `count` containers, updates them, kills some, removes them. Leaves nothing behind, also
   * when it fails.
   */
  measure(count: number, network: NetworkKind): Promise<Figures>;
  close(): Promise<void>;
}

/** The image and what it is updated to: the same files but for the version. */
export const IMAGES = ['cloudless/test:1', 'cloudless/test:2'] as const;
/**
 * Listens nowhere, as any number of them are to fit on the network of one host; ends at SIGTERM at
 * once. No port is declared.
 */
export const COMMAND = ['/bin/sh', '-c', 'trap "exit 0" TERM; sleep 86400 & wait'];
/** From SIGTERM to SIGKILL. */
export const GRACE_MS = 10_000;
/** Bare calls at a time; more is not faster on two cores. */
export const CONCURRENCY = 4;
/** Replaced at a time: the old one is stopped first. */
export const UPDATE_PARALLELISM = 4;
/** Containers killed, one after the other. */
export const KILLS = 5;

/** Runs an action for each item, so many at a time. */
export async function eachOf<Item>(
  items: readonly Item[],
  limit: number,
  action: (item: Item) => Promise<void>,
): Promise<void> {
  const left = items.values();
  const worker = async (): Promise<void> => {
    for (const item of left) await action(item); // the workers share one iterator
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
}
