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
import { getSecretName } from './route-secret.js';

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

/** A route that is created or changed. */
export interface ClaimedRoute {
  readonly record: RouteRecord;
  /** The spec before the change. Undefined: the route is new. */
  readonly before: RouteSpec | undefined;
}

/**
 * Returns why a route cannot have its certificate beside another route: a host has one certificate.
 * Routes that name files are not compared with each other, because two files may be equal.
 */
export function findCertificateConflict(
  { record, before }: ClaimedRoute,
  other: RouteRecord,
): string | undefined {
  const [spec, otherSpec] = [getRouteSpec(record), getRouteSpec(other)];
  const [secret, otherSecret] = [getSecretName(spec), getSecretName(otherSpec)];
  if (secret === '' && otherSecret === '') return undefined;
  const isSameNamespace = record.namespace === other.namespace;
  if (isSameNamespace && secret === otherSecret) return undefined;
  const otherHosts = new Set(listHosts(otherSpec));
  const shared = listHosts(spec).filter((host) => otherHosts.has(host));
  const key = toRouteKeyId(other.namespace, other.name);
  const [host] = shared;
  if (host !== undefined && spec.tls !== undefined && otherSpec.tls !== undefined)
    return `route "${key}" has another certificate for ${nameHost(host)} already; leave out spec.tls, name the same certificate, or choose another host`;
  if (isSameNamespace || secret === '' || otherSpec.tls !== undefined) return undefined;
  // The other route is reached by TLS with the certificate of a wildcard or of every host, or not at
  // all. Another namespace must not change this, neither by the host nor by a wildcard for the host.
  const known = before?.tls === undefined ? [] : listHosts(before);
  const isCoveredBy = (hosts: readonly string[], name: string): boolean =>
    hosts.some((each) => covers(each, name));
  const added = listHosts(otherSpec).find(
    (each) => isCoveredBy(listHosts(spec), each) && !isCoveredBy(known, each),
  );
  if (added === undefined) return undefined;
  const remedy = shared.includes(added)
    ? 'take the host out of that route first, or choose another host'
    : 'set spec.tls in that route, or choose other hosts';
  return `route "${key}" of another namespace answers ${nameHost(added)} already; ${remedy}`;
}

/** Returns true when a certificate for `host` is that of `name`, unless `name` has its own. */
function covers(host: string, name: string): boolean {
  if (host === name) return true;
  return host.startsWith('*.') && !name.startsWith('*') && toWildcard(name) === host;
}

/** Returns the wildcard for a name: `*.example.com` for `shop.example.com`. */
function toWildcard(name: string): string {
  return `*${name.slice(Math.max(0, name.indexOf('.')))}`;
}

function nameHost(host: string): string {
  return host === EVERY_HOST ? 'every host' : `host ${host}`;
}

/**
 * Checks that no other route has a host and path prefix of a new or changed route, or another
 * certificate for one of its hosts, and makes the commit conflict when the hosts, paths or
 * certificates of any route change meanwhile.
 * @throws kind `precondition`, naming the other route.
 */
export function putRouteClaims(
  view: ClusterView,
  transaction: Transaction,
  route: ClaimedRoute,
): void {
  const { namespace, name } = route.record;
  const key = toRouteKeyId(namespace, name);
  const spec = getRouteSpec(route.record);
  for (const { value } of view.routes()) {
    const other = toRouteKeyId(value.namespace, value.name);
    if (other === key) continue;
    const shared = findSharedClaim(spec, getRouteSpec(value));
    if (shared !== undefined) {
      const message = `route "${other}" answers ${nameHost(shared.host)} with path prefix ${shared.path} already; choose another host or path prefix, or add a rule to that route`;
      throw new CloudlessError('precondition', message);
    }
    const conflict = findCertificateConflict(route, value);
    if (conflict !== undefined) throw new CloudlessError('precondition', conflict);
  }
  const guard = view.routeGuard();
  const changes = (guard?.value.changes ?? 0n) + 1n;
  transaction
    .require('routeguard', ROUTE_GUARD_KEY, guard ?? 'absent')
    .put('routeguard', ROUTE_GUARD_KEY, create(RouteGuardRecordSchema, { changes }));
}
