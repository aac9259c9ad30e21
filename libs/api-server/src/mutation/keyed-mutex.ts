import { CloudlessError } from '@cloudless/base';

/**
 * Changes of one object that run or wait. At about 5 ms for a commit, the last change begins within
 * 5 s, well before the deadline of its call.
 */
const MAX_WAITING = 1_000;

/**
 * Runs the changes of one object one at a time, in the order of the calls, and changes of different
 * objects concurrently. Each change reads the result of the change before it, so two changes that
 * run through the mutex never conflict.
 */
export class KeyedMutex {
  private readonly queues = new Map<string, { last: Promise<unknown>; waiting: number }>();

  /** @param maxWaiting - Number of changes of one object that may run or wait. */
  constructor(private readonly maxWaiting: number = MAX_WAITING) {}

  /** Number of objects with a change that runs or waits. */
  get size(): number {
    return this.queues.size;
  }

  /**
   * Runs `work` after all earlier work of the same object has ended, even if that work failed.
   * @param object - Name of the object, also for the error message: `workload "default/web"`.
   * @returns The result of `work`.
   * @throws the error of `work`; kind `exhausted` when `maxWaiting` changes of the object run or
   *   wait, before `work` is called.
   */
  async run<Result>(object: string, work: () => Promise<Result>): Promise<Result> {
    const queue = this.queues.get(object) ?? { last: Promise.resolve(), waiting: 0 };
    if (queue.waiting >= this.maxWaiting) {
      throw new CloudlessError(
        'RATE_LIMITED',
        `${queue.waiting} changes of ${object} wait already; try again later`,
      );
    }
    this.queues.set(object, queue);
    queue.waiting += 1;
    const turn = queue.last.then(work);
    queue.last = turn.catch(() => undefined);
    try {
      return await turn;
    } finally {
      queue.waiting -= 1;
      if (queue.waiting === 0) this.queues.delete(object);
    }
  }
}
