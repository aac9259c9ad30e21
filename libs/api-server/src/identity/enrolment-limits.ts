import { isIPv6 } from 'node:net';
import { CloudlessError, Throttle, type Clock } from '@cloudless/base';

/** Failed attempts of one address, or of one /64 of IPv6, before it must wait. */
const ADDRESS_BURST = 10;
/** One further failed attempt of an address in each interval of this length, milliseconds. */
const ADDRESS_INTERVAL_MS = 2_000;
/** Failed attempts of all addresses together. Attempts of addresses that must wait do not count. */
const TOTAL_BURST = 200;
const TOTAL_INTERVAL_MS = 20;
const TOTAL = '';

/**
 * Limits how often strangers may try join tokens. Only failures count and only failures are refused,
 * so that a whole cluster can join at once from behind one address, also while another machine
 * behind this address guesses tokens.
 */
export class EnrolmentLimits {
  private readonly byAddress: Throttle;
  private readonly total: Throttle;
  /** Time until which the attempts of an address are refused, monotonic milliseconds. */
  private readonly waitUntil = new Map<string, number>();

  constructor(private readonly clock: Clock) {
    this.byAddress = new Throttle({ clock, burst: ADDRESS_BURST, everyMs: ADDRESS_INTERVAL_MS });
    this.total = new Throttle({ clock, burst: TOTAL_BURST, everyMs: TOTAL_INTERVAL_MS });
  }

  /**
   * Refuses an attempt without the secret of a token from an address that must wait.
   * @throws reason RATE_LIMITED with the time to wait.
   */
  check(address: string): void {
    const now = this.clock.now();
    for (const key of [toKey(address), TOTAL]) {
      const until = this.waitUntil.get(key) ?? 0;
      if (until <= now) this.waitUntil.delete(key);
      else throw createLimitError(until - now);
    }
  }

  /** Counts a failed attempt. */
  recordFailure(address: string): void {
    const key = toKey(address);
    this.delay(key, this.byAddress.take(key));
    this.delay(TOTAL, this.total.take(TOTAL));
  }

  private delay(key: string, result: ReturnType<Throttle['take']>): void {
    if (result.passes) return;
    const [oldest] = this.waitUntil.keys();
    if (this.waitUntil.size >= MAX_ADDRESSES && oldest !== undefined) this.waitUntil.delete(oldest);
    this.waitUntil.set(key, this.clock.now() + Math.max(1, result.waitMs));
  }
}

/** Addresses whose waiting time is remembered; the oldest are forgotten first. */
const MAX_ADDRESSES = 1_000;

function createLimitError(retryAfterMs: number): CloudlessError {
  return new CloudlessError(
    'RATE_LIMITED',
    `too many invalid join tokens; try again in ${Math.ceil(retryAfterMs / 1_000)} s with a valid one`,
    { retryAfterMs: Math.ceil(retryAfterMs) },
  );
}

/** One machine may have a whole /64 of IPv6, so all of its addresses count together. */
function toKey(address: string): string {
  if (!isIPv6(address) || address.includes('.')) return `address ${address}`;
  const [head = '', tail] = address.split('%')[0]?.split('::') ?? [];
  const groups = head === '' ? [] : head.split(':');
  if (tail !== undefined) {
    const tailGroups = tail === '' ? [] : tail.split(':');
    while (groups.length + tailGroups.length < 8) groups.push('0');
    groups.push(...tailGroups);
  }
  return `network ${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}`;
}
