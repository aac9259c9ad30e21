import type { CloudlessError, StopSignal } from '@cloudless/base';
import type { ContainerEvent } from '../container-runtime.js';
import { PushQueue } from './push-queue.js';

/** A reader with more unread events than this fails with kind `exhausted`: memory is bounded. */
const EVENT_LIMIT = 10_000;

/**
 * Delivers the events of a runtime to any number of readers. Each reader gets all events after its
 * subscription, in its own queue.
 */
export class EventBroadcaster {
  private readonly queues = new Set<PushQueue<ContainerEvent>>();

  /** True when there are no readers. */
  get isEmpty(): boolean {
    return this.queues.size === 0;
  }

  /**
   * Returns all events from this call on, until `signal` is aborted.
   * @param refusal - If set, the reader fails with this error at once.
   */
  subscribe(signal: StopSignal, refusal?: CloudlessError): AsyncIterable<ContainerEvent> {
    const queue: PushQueue<ContainerEvent> = new PushQueue<ContainerEvent>({
      limit: EVENT_LIMIT,
      signal,
      // Delayed, because the queue may call `onClose` during its construction.
      onClose: () => queueMicrotask(() => this.queues.delete(queue)),
    });
    if (refusal === undefined) this.queues.add(queue);
    else queue.fail(refusal);
    return queue;
  }

  /** Delivers an event to every reader. */
  publish(event: ContainerEvent): void {
    for (const queue of [...this.queues]) queue.push(event);
  }

  /** Fails every reader after it has read its queued events. */
  fail(reason: CloudlessError): void {
    for (const queue of [...this.queues]) queue.fail(reason);
    this.queues.clear();
  }
}
