import { assert } from '@cloudless/base';

/** The bytes that one call holds in memory, until the call releases them. */
export interface HeldBytes {
  /**
   * Adds to the bytes of the call; a negative number subtracts. May abort this call or another call
   * when the budget is exceeded.
   */
  add(bytes: number): void;
  /** Releases all bytes of the call. Later calls of `add` and `release` have no effect. */
  release(): void;
}

interface Holding {
  bytes: number;
  readonly cut: () => void;
}

/** All calls of one principal. */
interface Share {
  bytes: number;
  readonly holdings: Set<Holding>;
}

/**
 * Limits the bytes that all calls of a server hold together. When the sum exceeds the limit, the
 * largest call of the principal that holds the most is aborted.
 */
export class ByteBudget {
  private readonly shares = new Map<string, Share>();
  private total = 0;
  private cutCount = 0;

  /** @param onRelease - Called after bytes were released. */
  constructor(
    private readonly limitBytes: number,
    private readonly changed: () => void = () => undefined,
  ) {}

  get bytes(): number {
    return this.total;
  }

  /** Number of calls aborted since the start. */
  get cuts(): number {
    return this.cutCount;
  }

  bytesOf(principal: string): number {
    return this.shares.get(principal)?.bytes ?? 0;
  }

  /** @param abort - Ends the call. The budget no longer counts its bytes by then. */
  hold(principal: string, cut: () => void): HeldBytes {
    let released = false;
    const holding: Holding = {
      bytes: 0,
      cut: () => {
        released = true;
        cut();
      },
    };
    return {
      add: (bytes) => {
        if (released) return;
        this.count(principal, holding, bytes);
        if (bytes < 0) this.changed();
        while (this.total > this.limitBytes) this.cutLargest();
      },
      release: () => {
        if (released) return;
        released = true;
        this.forget(principal, holding);
        this.changed();
      },
    };
  }

  private count(principal: string, holding: Holding, bytes: number): void {
    let share = this.shares.get(principal);
    if (share === undefined)
      this.shares.set(principal, (share = { bytes: 0, holdings: new Set() }));
    share.holdings.add(holding);
    share.bytes += bytes;
    holding.bytes += bytes;
    this.total += bytes;
  }

  private forget(principal: string, holding: Holding): void {
    const share = this.shares.get(principal);
    if (share?.holdings.delete(holding) !== true) return;
    if (share.holdings.size === 0) this.shares.delete(principal);
    share.bytes -= holding.bytes;
    this.total -= holding.bytes;
  }

  private cutLargest(): void {
    const [principal, share] = largest(this.shares.entries(), ([, { bytes }]) => bytes);
    const holding = largest(share.holdings, ({ bytes }) => bytes);
    this.forget(principal, holding);
    this.cutCount += 1;
    holding.cut();
  }
}

function largest<Item>(items: Iterable<Item>, sizeOf: (item: Item) => number): Item {
  let best: Item | undefined;
  for (const item of items) if (best === undefined || sizeOf(item) > sizeOf(best)) best = item;
  assert(best !== undefined, 'an exceeded budget has a holder');
  return best;
}
