/** A pending timer in a {@link TimerHeap}. */
export interface HeapTimer {
  /** Deadline on the monotonic clock, milliseconds. */
  readonly at: number;
  /** Orders timers with the same deadline: the timer with the lower number fires first. */
  readonly order: number;
  /** Undefined after cancellation, so that a cancelled timer keeps no objects alive. */
  action: (() => void) | undefined;
}

/** A timer that is due. The caller calls `action`. */
export interface DueTimer {
  readonly at: number;
  readonly action: () => void;
}

/**
 * A binary heap of timers in the order of deadline, then of creation. Cancelled timers stay in the
 * heap until they are due or outnumber the other timers.
 */
export class TimerHeap {
  private heap: HeapTimer[] = [];
  private cancelled = 0;

  /** Number of timers that are set and not cancelled. */
  get size(): number {
    return this.heap.length - this.cancelled;
  }

  add(timer: HeapTimer): void {
    this.heap.push(timer);
    this.siftUp(this.heap.length - 1);
  }

  /** Cancels a timer. Does nothing for a timer that has fired or is cancelled. */
  cancel(timer: HeapTimer): void {
    if (timer.action === undefined) return;
    timer.action = undefined;
    this.cancelled += 1;
    if (this.cancelled > MIN_CANCELLED && this.cancelled * 2 > this.heap.length)
      this.removeCancelled();
  }

  /** Removes and returns the first timer that is due by `untilMs`; undefined when none is due. */
  removeDue(untilMs: number): DueTimer | undefined {
    for (
      let first = this.heap[0];
      first !== undefined && first.at <= untilMs;
      first = this.heap[0]
    ) {
      this.removeFirst();
      const { at, action } = first;
      if (action !== undefined) {
        first.action = undefined; // fired: a later cancel does nothing
        return { at, action };
      }
      this.cancelled -= 1;
    }
    return undefined;
  }

  private removeCancelled(): void {
    this.heap = this.heap
      .filter(({ action }) => action !== undefined)
      .sort((a, b) => (isBefore(a, b) ? -1 : 1));
    this.cancelled = 0;
  }

  private removeFirst(): void {
    const last = this.heap.pop();
    if (last === undefined || this.heap.length === 0) return;
    this.heap[0] = last;
    this.siftDown(0);
  }

  private siftUp(start: number): void {
    const { heap } = this;
    const timer = heap[start] as HeapTimer;
    let index = start;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!isBefore(timer, heap[parent] as HeapTimer)) break;
      heap[index] = heap[parent] as HeapTimer;
      index = parent;
    }
    heap[index] = timer;
  }

  private siftDown(start: number): void {
    const { heap } = this;
    const timer = heap[start] as HeapTimer;
    let index = start;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) break;
      if (
        child + 1 < heap.length &&
        isBefore(heap[child + 1] as HeapTimer, heap[child] as HeapTimer)
      )
        child += 1;
      if (!isBefore(heap[child] as HeapTimer, timer)) break;
      heap[index] = heap[child] as HeapTimer;
      index = child;
    }
    heap[index] = timer;
  }
}

/** Cancelled timers up to this number stay, because their removal sorts the whole heap. */
const MIN_CANCELLED = 64;

function isBefore(a: HeapTimer, b: HeapTimer): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
