import { assert } from '@cloudless/base';

/** The bytes that one call holds in memory, until the call releases them. */
export interface TrackedBytes {
  /**
   * Adds to the bytes of the call; a negative number subtracts. May abort this call or another call
   * when the budget is exceeded.
   */
  add(bytes: number): void;
  /** Releases all bytes of the call. Later calls of `add` and `release` have no effect. */
  release(): void;
}

interface TrackedCall {
  /** Bytes that the call holds now. */
  bytes: number;
  readonly abort: () => void;
}

/** All calls of one principal. */
interface PrincipalUsage {
  bytes: number;
  readonly calls: Set<TrackedCall>;
}

/**
 * Limits the bytes that all calls of a server hold together. When the sum exceeds the limit, the
 * budget aborts the largest call of the principal that holds the most bytes.
 */
export class ByteBudget {
  private readonly usageByPrincipal = new Map<string, PrincipalUsage>();
  private total = 0;
  private abortedCount = 0;

  /**
   * @param limitBytes - Limit of the bytes of all calls together.
   * @param onRelease - Called after bytes were released, but not after an abort.
   */
  constructor(
    private readonly limitBytes: number,
    private readonly onRelease: () => void = () => undefined,
  ) {}

  /** Bytes that all calls hold now. */
  get bytes(): number {
    return this.total;
  }

  /** Number of calls aborted since the start. */
  get aborted(): number {
    return this.abortedCount;
  }

  /** Returns the bytes that the calls of one principal hold now. */
  getBytes(principal: string): number {
    return this.usageByPrincipal.get(principal)?.bytes ?? 0;
  }

  /**
   * Starts to count the bytes of a call, from 0.
   * @param abort - Ends the call when the budget is exceeded. Runs after the bytes of the call were
   *   removed from the budget.
   */
  track(principal: string, abort: () => void): TrackedBytes {
    let released = false;
    const call: TrackedCall = {
      bytes: 0,
      abort: () => {
        released = true;
        abort();
      },
    };
    return {
      add: (bytes) => {
        if (released || bytes === 0) return;
        this.addBytes(principal, call, bytes);
        if (bytes < 0) this.onRelease();
        while (this.total > this.limitBytes) this.abortLargestCall();
      },
      release: () => {
        if (released) return;
        released = true;
        this.removeCall(principal, call);
        this.onRelease();
      },
    };
  }

  private addBytes(principal: string, call: TrackedCall, bytes: number): void {
    let usage = this.usageByPrincipal.get(principal);
    if (usage === undefined)
      this.usageByPrincipal.set(principal, (usage = { bytes: 0, calls: new Set() }));
    usage.calls.add(call);
    usage.bytes += bytes;
    call.bytes += bytes;
    this.total += bytes;
  }

  private removeCall(principal: string, call: TrackedCall): void {
    const usage = this.usageByPrincipal.get(principal);
    if (usage?.calls.delete(call) !== true) return;
    if (usage.calls.size === 0) this.usageByPrincipal.delete(principal);
    usage.bytes -= call.bytes;
    this.total -= call.bytes;
  }

  private abortLargestCall(): void {
    const [principal, usage] = findLargest(
      this.usageByPrincipal.entries(),
      ([, { bytes }]) => bytes,
    );
    const call = findLargest(usage.calls, ({ bytes }) => bytes);
    this.removeCall(principal, call);
    this.abortedCount += 1;
    call.abort();
  }
}

function findLargest<Item>(items: Iterable<Item>, getSize: (item: Item) => number): Item {
  let largest: Item | undefined;
  for (const item of items)
    if (largest === undefined || getSize(item) > getSize(largest)) largest = item;
  assert(largest !== undefined, 'an exceeded budget has a holder');
  return largest;
}
