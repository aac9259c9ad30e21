import { Code, ConnectError } from '@connectrpc/connect';
import type { Route } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { parseWorkloadName, type WorkloadName } from '../../names.js';
import { suggestSimilar } from '../../suggest.js';

/** Namespace and name of a route. */
export type RouteName = WorkloadName;

/** Formats the name of a route for messages: `route default/shop`. */
export function formatRouteName({ namespace, name }: RouteName): string {
  return `route ${namespace}/${name}`;
}

/**
 * Parses `[namespace/]name`.
 * @throws {@link CliFailure} with exit code 2 when one of the names is invalid.
 */
export function parseRouteName(text: string, defaultNamespace: string): RouteName {
  return parseWorkloadName(text, defaultNamespace, 'route');
}

/**
 * Returns a route.
 * @throws {@link CliFailure} with exit code 3 when the route does not exist; the message names a
 *   similar route of the namespace, if there is one.
 */
export async function findRoute(session: CliSession, name: RouteName): Promise<Route> {
  try {
    return await session.network.getRoute(name, session.getCallOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.NotFound) throw reason;
    const names = await session.network
      .listRoutes({ namespace: name.namespace, pageSize: 1_000 }, session.getCallOptions())
      .then((page) => page.routes.map((route) => route.name))
      .catch(() => []); // the first error is the one to report
    const hint = suggestSimilar(name.name, names);
    if (hint === '') throw reason;
    throw new CliFailure(ExitCode.notFound, `${reason.rawMessage}${hint}`, { cause: reason });
  }
}

/**
 * Prints the status line of a change, and the conditions of the route that do not hold.
 * @param change - The change, for example `created`.
 */
export async function printRouteStatus(
  session: CliSession,
  route: Route,
  change: string,
): Promise<void> {
  await session.printStatus(`${formatRouteName(route)}: ${change}`);
  for (const { holds, message } of route.status?.conditions ?? [])
    if (!holds) await session.printStatus(`note: ${message}`);
}
