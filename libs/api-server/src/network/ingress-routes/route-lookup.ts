import { create } from '@bufbuild/protobuf';
import { RouteSpecSchema, resolveNamespace, type RouteSpec } from '@cloudless/api';
import type { RouteRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import { toRouteKeyId, type ClusterView, type Stored } from '@cloudless/cluster-state';
import { checkGeneration } from '../../generation.js';

/** The name of a route in a request. An empty namespace means `default`. */
export interface RouteName {
  readonly namespace: string;
  readonly name: string;
}

/** Returns the key of the route that a request names. */
export function toRouteKey(request: RouteName): string {
  return toRouteKeyId(resolveNamespace(request), request.name);
}

/**
 * Returns the route that a request names.
 * @throws kind `notFound` when there is no such route.
 */
export function requireRoute(view: ClusterView, request: RouteName): Stored<RouteRecord> {
  const key = toRouteKey(request);
  const route = view.route(key);
  if (route !== undefined) return route;
  throw new CloudlessError('notFound', `route "${key}" not found`);
}

/**
 * Returns the route that a request changes.
 * @throws the errors of {@link requireRoute}; kind `conflict` when its generation is not the expected
 *   one.
 */
export function requireExpectedRoute(
  view: ClusterView,
  request: RouteName & { readonly expectedGeneration?: bigint | undefined },
): Stored<RouteRecord> {
  const route = requireRoute(view, request);
  const { generation } = route.value;
  const name = toRouteKey(request);
  checkGeneration({ kind: 'route', name, generation }, request.expectedGeneration);
  return route;
}

/** Returns the spec of a route; an empty spec when the record has none. */
export function getRouteSpec({ spec }: RouteRecord): RouteSpec {
  return spec ?? create(RouteSpecSchema);
}
