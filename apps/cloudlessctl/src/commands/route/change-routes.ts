import type { Route } from '@cloudless/api';
import { createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import { readRouteFlags } from '../../flags/route-flags.js';
import { changeEach } from '../change-each.js';
import { requireOperand } from '../options.js';
import { formatRouteName, parseRouteName, printRouteStatus } from './find-route.js';
import { ROUTE_KIND } from './show-routes.js';

/** Creates a route from flags. */
export async function createRoute(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name');
  const name = parseRouteName(text, session.settings.namespace);
  const { spec, labels } = readRouteFlags(invocation);
  if (spec.rules.length === 0)
    throw createUsageFailure('give a --service, such as --service web:80, or a --rule');
  const route = await session.network.createRoute(
    { ...name, spec, labels: { ...labels }, requestId: session.getRequestId() },
    session.getCallOptions(),
  );
  await reportRoute(invocation, route, 'created');
}

/** Changes the fields of a route for which flags are given. */
export async function updateRoute(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name of the route');
  const name = parseRouteName(text, session.settings.namespace);
  const { spec, specPaths, labels } = readRouteFlags(invocation);
  if (specPaths.length === 0 && Object.keys(labels).length === 0)
    throw createUsageFailure('nothing to change: give at least one flag');
  const route = await session.network.updateRoute(
    {
      ...name,
      ...(specPaths.length === 0 ? {} : { spec, updateMask: { paths: [...specPaths] } }),
      labels: { ...labels },
      requestId: session.getRequestId(),
    },
    session.getCallOptions(),
  );
  await reportRoute(invocation, route, 'updated');
}

/** Deletes routes. */
export async function deleteRoutes(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const names = operands.map((text) => parseRouteName(text, session.settings.namespace));
  const deleted = await changeEach(session, names, {
    describe: formatRouteName,
    change: async (name, requestId) => {
      await session.network.deleteRoute({ ...name, requestId }, session.getCallOptions());
      await session.printStatus(`${formatRouteName(name)}: deleted`);
    },
  });
  deleted.throwFailure();
}

async function reportRoute({ session }: Invocation, route: Route, change: string): Promise<void> {
  await printRouteStatus(session, route, change);
  if (session.isStructured) await session.printValue(ROUTE_KIND.toJson(route));
}
