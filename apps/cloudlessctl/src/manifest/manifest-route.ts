import { create } from '@bufbuild/protobuf';
import { CreateRouteRequestSchema, RouteSpecSchema, checkRoute } from '@cloudless/api';
import type { RouteSpec } from '@cloudless/api';
import { InvalidInputError, type Violation } from '@cloudless/base';
import { readRequestBody, type ObjectEntries, type ObjectId } from './read-body.js';
import type { RequestKind } from './read-body.js';

/** A route of a manifest. */
export interface ManifestRoute extends ObjectId {
  readonly spec: RouteSpec;
  readonly labels: Readonly<Record<string, string>>;
}

/** Keys of a route beside kind, namespace and name. */
export const ROUTE_KEYS: readonly string[] = ['spec', 'labels'];

const ROUTE_REQUEST: RequestKind<typeof CreateRouteRequestSchema> = {
  schema: CreateRouteRequestSchema,
  keys: ROUTE_KEYS,
  checks: [
    ({ spec }) => checkRoute(spec ?? create(RouteSpecSchema)),
    ({ spec }) => checkTargets(spec ?? create(RouteSpecSchema)),
  ],
};

/**
 * Checks that each rule names a service and a port. The proto requires both, but the coordinator
 * would refuse the route only when `apply` has already changed services and workloads.
 * @throws {@link InvalidInputError} with every violation.
 */
function checkTargets({ rules }: RouteSpec): void {
  const violations = rules.flatMap(({ service, port }, index): readonly Violation[] =>
    Object.entries({ service, port }).flatMap(([name, value]) =>
      value === '' ? [{ field: `spec.rules[${index}].${name}`, message: 'is required' }] : [],
    ),
  );
  if (violations.length > 0) throw new InvalidInputError(violations);
}

/** Reads a route, see {@link readRequestBody}. */
export function readRouteBody(
  entries: ObjectEntries,
  id: ObjectId | undefined,
): ManifestRoute | undefined {
  const request = readRequestBody(ROUTE_REQUEST, entries, id);
  if (id === undefined || request?.spec === undefined) return undefined;
  const { spec, labels } = request;
  return { ...id, spec, labels };
}
