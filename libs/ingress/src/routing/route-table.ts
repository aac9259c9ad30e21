import { sortByRouteKey, type IngressRoute, type IngressRule } from '../model.js';
import { EVERY_HOST, toWildcard } from './host.js';
import { isBelow, normalisePath } from './path.js';

/** The route and rule of a request. */
export interface RouteMatch {
  readonly route: IngressRoute;
  readonly rule: IngressRule;
}

interface Entry extends RouteMatch {
  readonly prefix: string;
}

/**
 * Chooses the route of a request: a route with the exact host before one with a wildcard before one
 * for every host, and among those of one host the longest path prefix. A host whose routes do not
 * cover the path falls back to the less exact ones. Immutable: a change of routes makes a new
 * table, and open requests keep what they have chosen.
 */
export class RouteTable {
  private readonly byHost = new Map<string, Entry[]>();

  /** @param routes - In any order; of two rules for the same host and path, the first key wins. */
  constructor(routes: Iterable<IngressRoute>) {
    for (const route of sortByRouteKey(routes))
      for (const host of route.hosts.length === 0 ? [EVERY_HOST] : new Set(route.hosts))
        this.add(host.toLowerCase(), route);
    for (const entries of this.byHost.values())
      entries.sort((a, b) => b.prefix.length - a.prefix.length);
  }

  /**
   * Returns the route and rule for a host and path; undefined when no route fits.
   * @param host - As {@link normaliseHost} returns it.
   * @param path - As {@link normalisePath} returns it.
   */
  choose(host: string, path: string): RouteMatch | undefined {
    for (const entries of this.candidates(host)) {
      const found = entries.find(({ prefix }) => isBelow(path, prefix));
      if (found !== undefined) return { route: found.route, rule: found.rule };
    }
    return undefined;
  }

  /** Returns true when a route exists for a host, at any path. */
  hasHost(host: string): boolean {
    return this.candidates(host).length > 0;
  }

  private candidates(host: string): readonly (readonly Entry[])[] {
    const wildcard = toWildcard(host);
    return [host, ...(wildcard === undefined ? [] : [wildcard]), EVERY_HOST].flatMap((key) => {
      const entries = this.byHost.get(key);
      return entries === undefined ? [] : [entries];
    });
  }

  private add(host: string, route: IngressRoute): void {
    const entries = this.byHost.get(host) ?? [];
    this.byHost.set(host, entries);
    for (const rule of route.rules) {
      const prefix = toPrefix(rule.pathPrefix);
      if (prefix === undefined || entries.some((known) => known.prefix === prefix)) continue;
      entries.push({ route, rule, prefix });
    }
  }
}

/** A prefix without its last slash; undefined for one that no request can have. */
function toPrefix(pathPrefix: string): string | undefined {
  const path = normalisePath(pathPrefix);
  return path?.endsWith('/') === true ? path.slice(0, -1) : path;
}
