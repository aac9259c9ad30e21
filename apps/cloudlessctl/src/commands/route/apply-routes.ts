import { RouteSchema, withRouteDefaults, type Route } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import type { ManifestRoute } from '../../manifest/manifest-route.js';
import {
  getIfExists,
  requireFreshChanges,
  toLabelChanges,
  toPutChange,
  type ChangedKind,
  type ObjectChange,
  type PutChange,
} from '../objects/object-change.js';
import { printRouteStatus } from './find-route.js';

/** Changes of one route by a manifest. */
export type RouteChange = ObjectChange<ManifestRoute, Route>;

/** How `apply` and `delete -f` change routes. */
export const ROUTE_CHANGES: ChangedKind<ManifestRoute, Route> = {
  noun: 'route',
  schema: RouteSchema,
  put: putRoute,
  delete: (session, name, requestId) =>
    session.network.deleteRoute({ ...name, requestId }, session.getCallOptions()),
  printStatus: printRouteStatus,
};

/**
 * Compares routes of manifests with those of the cluster. Nothing is changed.
 * @returns The changes in the order in which they are made: updates first, because an update may
 *   free a host and path prefix that a new route takes.
 * @throws {@link CliFailure} with exit code 4 that lists the routes whose manifest has an older
 *   generation.
 */
export async function planRoutes(
  session: CliSession,
  routes: readonly ManifestRoute[],
): Promise<readonly PutChange<ManifestRoute, Route>[]> {
  const changes: PutChange<ManifestRoute, Route>[] = [];
  for (const wanted of routes) {
    const { namespace, name } = wanted;
    const current = await getIfExists(
      session.network.getRoute({ namespace, name }, session.getCallOptions()),
    );
    changes.push(compareRoute(wanted, current));
  }
  requireFreshChanges('route', changes);
  return [
    ...changes.filter(({ current }) => current !== undefined),
    ...changes.filter(({ current }) => current === undefined),
  ];
}

function compareRoute(
  wanted: ManifestRoute,
  current: Route | undefined,
): PutChange<ManifestRoute, Route> {
  const spec = withRouteDefaults(wanted.spec);
  const before =
    current?.spec === undefined
      ? {}
      : { spec: withRouteDefaults(current.spec), labels: current.labels };
  const after = { spec, labels: { ...wanted.labels } };
  return toPutChange(RouteSchema, { ...wanted, spec }, current, [before, after]);
}

function putRoute(
  session: CliSession,
  { wanted, current }: PutChange<ManifestRoute, Route>,
): Promise<Route> {
  const { namespace, name, spec, labels } = wanted;
  const requestId = session.getRequestId(`route/${namespace}/${name}`);
  if (current === undefined)
    return session.network.createRoute(
      { namespace, name, spec, labels: { ...labels }, requestId },
      session.getCallOptions(),
    );
  return session.network.updateRoute(
    {
      ...{ namespace, name, spec, updateMask: { paths: ['*'] }, requestId },
      labels: toLabelChanges(current.labels, labels),
      expectedGeneration: current.generation,
    },
    session.getCallOptions(),
  );
}
