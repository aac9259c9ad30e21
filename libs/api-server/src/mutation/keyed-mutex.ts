import { CloudlessError } from '@cloudless/base';

/**
 * Changes of one object that run or wait. At about 5 ms for a commit, the last one begins within 5
 * s, well before the deadline of its call.
 */
const MAX_WAITING = 1_000;

/**
 * Runs the changes of one object one at a time, in the order of the calls, and changes of different
 * objects concurrently. No two callers plan on the same state, so no change conflicts with another.
 */
export class KeyedMutex {
  private readonly queues = new Map<string, { last: Promise<unknown>; waiting: number }>();

  /** @param maxWaiting - Changes of one object that run or wait; one more is refused. */
  constructor(private readonly maxWaiting: number = MAX_WAITING) {}

  /** Number of objects with a change that runs or waits. */
  get size(): number {
    return this.queues.size;
  }

  /**
   * Runs `work` after all earlier work of the same object has ended, whether or not that succeeded.
   * @param object - Names the object, also in the error: `workload "default/web"`.
   * @returns The outcome of `work`.
   * @throws kind `exhausted` when too many changes of the object wait.
   */
  async run<Result>(object: string, work: () => Promise<Result>): Promise<Result> {
    const line = this.queues.get(object) ?? { last: Promise.resolve(), waiting: 0 };
    if (line.waiting >= this.maxWaiting) {
      throw new CloudlessError(
        'exhausted',
        `${line.waiting} changes of ${object} wait already; try again later`,
      );
    }
    this.queues.set(object, line);
    line.waiting += 1;
    const turn = line.last.then(work);
    line.last = turn.catch(() => undefined);
    try {
      return await turn;
    } finally {
      line.waiting -= 1;
      if (line.waiting === 0) this.queues.delete(object);
    }
  }
}
