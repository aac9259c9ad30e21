/** Decision about a response to a client that is not on this machine. */
export type LimitVerdict =
  | 'send'
  /** Send a truncated response: an honest client retries by TCP, a victim receives no more bytes. */
  | 'truncate'
  | 'drop';

/** Bounds of the responses by UDP to clients that are not on this machine. */
export interface ResponseLimits {
  /** Responses a second to one network (an IPv4 /24, an IPv6 /56). */
  readonly perNetwork: number;
  /** Responses a second to all of them. */
  readonly total: number;
  /** Networks that are counted apart; further ones replace the oldest. */
  readonly maxNetworks: number;
}

/** The bounds of a server that sets none. */
export const DEFAULT_RESPONSE_LIMITS: ResponseLimits = {
  perNetwork: 50,
  total: 5_000,
  maxNetworks: 4_096,
};

interface Bucket {
  tokens: number;
  filledAtMs: number;
  refused: number;
}

/**
 * Limits responses by UDP, because the source address of a question may be forged: then the
 * responses hit a victim. Above the limit, every second response is truncated and the others are
 * dropped, as the response rate limiting of BIND and Knot does.
 */
export class ResponseLimit {
  private readonly networks = new Map<string, Bucket>();
  private readonly total: Bucket;

  constructor(private readonly limits: ResponseLimits) {
    this.total = { tokens: limits.total, filledAtMs: -Infinity, refused: 0 };
  }

  /** Number of networks that are counted. */
  get size(): number {
    return this.networks.size;
  }

  /** Decides about one response to `address` at `nowMs` (monotonic milliseconds). */
  check(address: string, nowMs: number): LimitVerdict {
    const network = networkOf(address);
    let bucket = this.networks.get(network);
    if (bucket === undefined) {
      bucket = { tokens: this.limits.perNetwork, filledAtMs: nowMs, refused: 0 };
      this.networks.set(network, bucket);
      if (this.networks.size > this.limits.maxNetworks) this.dropOldest();
    }
    if (!take(this.total, this.limits.total, nowMs)) return 'drop';
    if (take(bucket, this.limits.perNetwork, nowMs)) return 'send';
    bucket.refused += 1;
    return bucket.refused % 2 === 0 ? 'truncate' : 'drop';
  }

  private dropOldest(): void {
    for (const network of this.networks.keys()) {
      this.networks.delete(network);
      return;
    }
  }
}

function take(bucket: Bucket, perSecond: number, nowMs: number): boolean {
  const gained = ((nowMs - bucket.filledAtMs) * perSecond) / 1_000;
  bucket.tokens = Math.min(perSecond, bucket.tokens + gained);
  bucket.filledAtMs = nowMs;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

function networkOf(address: string): string {
  if (!address.includes(':')) return address.slice(0, address.lastIndexOf('.'));
  return address.split(':', 4).join(':').slice(0, 17);
}
