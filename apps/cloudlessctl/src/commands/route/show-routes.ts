import { create } from '@bufbuild/protobuf';
import { RouteSchema, RouteSpecSchema, type Route } from '@cloudless/api';
import { toKindJson } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import type { ManifestRoute } from '../../manifest/manifest-route.js';
import { printRouteManifests } from '../../manifest/print-manifest.js';
import { formatRouteDescription, formatRouteTable } from '../../views/route-view.js';
import {
  describeEmptyList,
  printObjects,
  readListFilter,
  type ObjectKind,
} from '../general/list-objects.js';
import { requireOperand } from '../options.js';
import { listAllPages } from '../page.js';
import { findRoute, parseRouteName } from './find-route.js';

/** Names, fields and columns of routes in lists. */
export const ROUTE_KIND: ObjectKind<Route> = {
  plural: 'routes',
  fields: RouteSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (route) => toKindJson('Route', RouteSchema, route),
  formatManifests: (routes) => printRouteManifests(routes.map(toManifest)),
  formatTable: (routes, { nowMs, style, settings }) =>
    formatRouteTable(routes, nowMs, style, settings.output === 'wide'),
};

function toManifest({
  namespace,
  name,
  labels,
  spec = create(RouteSpecSchema),
}: Route): ManifestRoute {
  return { namespace, name, spec, labels };
}

/** Lists the routes of a namespace, or of all namespaces with `--all-namespaces`. */
export async function listRoutes(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const filter = readListFilter(invocation);
  const routes = await listAllPages(
    (page) => session.network.listRoutes({ ...filter, ...page }, session.getCallOptions()),
    (page) => page.routes,
  );
  const empty = describeEmptyList(ROUTE_KIND.plural, filter.namespace);
  const hint = `${empty}; create one with: cloudlessctl route create`;
  await printObjects(invocation, ROUTE_KIND, routes, hint);
}

/** Shows routes by name. */
export async function getRoutes(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const routes: Route[] = [];
  for (const text of operands)
    routes.push(await findRoute(session, parseRouteName(text, session.settings.namespace)));
  await printObjects(invocation, ROUTE_KIND, routes, 'no routes', {
    single: operands.length === 1,
  });
}

/** Shows a route with its rules and conditions. */
export async function describeRoute(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name of the route');
  const route = await findRoute(session, parseRouteName(text, session.settings.namespace));
  if (session.isStructured) return session.printValue(ROUTE_KIND.toJson(route));
  await session.print(formatRouteDescription(route, session.style));
}
