import type { CloudlessError, StopSignal } from '@cloudless/base';
import type { ContainerEvent } from './container-runtime.js';
import { PushQueue } from './push-queue.js';

/** A reader of events this far behind is cut off. */
const EVENT_LIMIT = 10_000;

/**
 * Who reads the events of a runtime: each reader has all that is told from its `read` on, in a
 * queue of its own.
 */
export class EventReaders {
  private readonly queues = new Set<PushQueue<ContainerEvent>>();

  /** Whether anybody reads. */
  get isEmpty(): boolean {
    return this.queues.size === 0;
  }

  /**
   * Events from now on, until `signal` is aborted.
   * @param refusal - Why there are none: this reader fails with it.
   */
  read(signal: StopSignal, refusal?: CloudlessError): AsyncIterable<ContainerEvent> {
    const queue: PushQueue<ContainerEvent> = new PushQueue<ContainerEvent>({
      limit: EVENT_LIMIT,
      signal,
      // it may close while it is made
      onClose: () => queueMicrotask(() => this.queues.delete(queue)),
    });
    if (refusal === undefined) this.queues.add(queue);
    else queue.fail(refusal);
    return queue;
  }

  tell(event: ContainerEvent): void {
    for (const queue of [...this.queues]) queue.push(event);
  }

  /** Every reader fails, once it has read what waits for it. */
  fail(reason: CloudlessError): void {
    for (const queue of [...this.queues]) queue.fail(reason);
    this.queues.clear();
  }
}
