import { create } from '@bufbuild/protobuf';
import type { RouteSpec } from '@cloudless/api';
import { RouteGuardRecordSchema, type RouteRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import {
  ROUTE_GUARD_KEY,
  toRouteKeyId,
  type ClusterView,
  type Transaction,
} from '@cloudless/cluster-state';
import { getRouteSpec } from './route-lookup.js';

/** Stands for every host, in a route without hosts. */
const EVERY_HOST = '*';

/** The requests that a route answers: each of its hosts with each of its path prefixes. */
type Claims = Pick<RouteSpec, 'hosts' | 'rules'>;

function listHosts({ hosts }: Claims): readonly string[] {
  return hosts.length === 0 ? [EVERY_HOST] : hosts;
}

/**
 * Returns a host with a path prefix that both specs have; undefined when there is none. The specs
 * have all defaults.
 */
export function findSharedClaim(
  left: Claims,
  right: Claims,
): { readonly host: string; readonly path: string } | undefined {
  const hosts = new Set(listHosts(left));
  const host = listHosts(right).find((each) => hosts.has(each));
  if (host === undefined) return undefined;
  const paths = new Set(left.rules.map(({ pathPrefix }) => pathPrefix));
  const path = right.rules.find(({ pathPrefix }) => paths.has(pathPrefix))?.pathPrefix;
  return path === undefined ? undefined : { host, path };
}

/**
 * Checks that no other route has a host and path prefix of a new or changed route, and makes the
 * commit conflict when the hosts or paths of any route change meanwhile.
 * @throws kind `precondition`, naming the other route.
 */
export function putRouteClaims(
  view: ClusterView,
  transaction: Transaction,
  { namespace, name, ...record }: RouteRecord,
): void {
  const key = toRouteKeyId(namespace, name);
  const spec = getRouteSpec({ namespace, name, ...record });
  for (const { value } of view.routes()) {
    const other = toRouteKeyId(value.namespace, value.name);
    const shared = other === key ? undefined : findSharedClaim(spec, getRouteSpec(value));
    if (shared === undefined) continue;
    const host = shared.host === EVERY_HOST ? 'every host' : `host ${shared.host}`;
    const message = `route "${other}" answers ${host} with path prefix ${shared.path} already; choose another host or path prefix, or add a rule to that route`;
    throw new CloudlessError('precondition', message);
  }
  const guard = view.routeGuard();
  const changes = (guard?.value.changes ?? 0n) + 1n;
  transaction
    .require('routeguard', ROUTE_GUARD_KEY, guard ?? 'absent')
    .put('routeguard', ROUTE_GUARD_KEY, create(RouteGuardRecordSchema, { changes }));
}
