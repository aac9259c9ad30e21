/** A route in the output of `ip -j -4 route show table all`, as far as it matters here. */
export interface MachineRoute {
  /** `local` for addresses of this machine. Absent: an ordinary route. */
  readonly type?: string;
  /** `10.0.0.0/8`, an address, or `default`. */
  readonly dst: string;
  readonly dev?: string;
  /** Address of a gateway. Absent: the addresses are directly reachable. */
  readonly gateway?: string;
}

/** The change that makes every address of a range an address of this machine. */
export type RoutePlan =
  | { readonly kind: 'ready' }
  | { readonly kind: 'add' }
  /** `reason`: what speaks against the route, for people. */
  | { readonly kind: 'refuse'; readonly reason: string };

interface Range {
  readonly first: number;
  readonly last: number;
}

/**
 * Decides whether a range of virtual addresses needs a route of its own. Refuses a range that would
 * take addresses from something that this machine reaches now: a local route has precedence over
 * all others, so that such a route could cut the machine off.
 * @param cidr - The range, such as `10.96.0.0/16`.
 * @param routes - All routes of the machine.
 */
export function planRoute(cidr: string, routes: readonly MachineRoute[]): RoutePlan {
  const range = parseRange(cidr);
  if (range === undefined || !cidr.includes('/'))
    return { kind: 'refuse', reason: `${cidr} is no range of IPv4 addresses` };
  const parsed = routes.flatMap((route) => {
    const target = parseRange(route.dst);
    return target === undefined ? [] : [{ route, target }];
  });
  const isLocal = parsed.some(
    ({ route, target }) => route.type === 'local' && route.dev === 'lo' && contains(target, range),
  );
  if (isLocal) return { kind: 'ready' };
  const conflict = parsed.find(
    ({ route, target }) =>
      overlaps(target, range) && (contains(range, target) || route.gateway === undefined),
  );
  if (conflict === undefined) return { kind: 'add' };
  const { dst, dev } = conflict.route;
  return {
    kind: 'refuse',
    reason: `the range ${cidr} of virtual addresses overlaps ${dst}${dev === undefined ? '' : ` at ${dev}`}, which this machine uses; start the coordinators with another --service-cidr`,
  };
}

function contains(outer: Range, inner: Range): boolean {
  return outer.first <= inner.first && inner.last <= outer.last;
}

function overlaps(a: Range, b: Range): boolean {
  return a.first <= b.last && b.first <= a.last;
}

/** Returns undefined for anything but an IPv4 address or range; also for `default`. */
function parseRange(text: string): Range | undefined {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:\/(\d{1,2}))?$/.exec(text);
  if (match === null) return undefined;
  const bytes = match.slice(1, 5).map(Number);
  const prefix = match[5] === undefined ? 32 : Number(match[5]);
  if (prefix < 1 || prefix > 32 || bytes.some((byte) => byte > 255)) return undefined;
  const address = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
  const size = 2 ** (32 - prefix);
  const first = Math.floor(address / size) * size;
  return { first, last: first + size - 1 };
}
