import type { JsonValue } from '@bufbuild/protobuf';
import { PlanSchema, type Plan } from '@cloudless/api';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatPlannedChanges } from '../../views/stored-plan-view.js';
import { toConfigChangesJson, type ConfigChange } from '../config/plan-configs.js';
import { isDeletion, isPut } from '../objects/object-change.js';
import { formatObjectChanges, toObjectChangesJson } from '../objects/object-change.js';
import { ROUTE_CHANGES, type RouteChange } from '../route/apply-routes.js';
import { SERVICE_CHANGES } from '../service/apply-services.js';
import type { ServiceChange } from '../service/plan-services.js';

/** Changes of other objects than workloads. */
export interface ObjectChanges {
  readonly services: readonly ServiceChange[];
  readonly routes: readonly RouteChange[];
  readonly configs: readonly ConfigChange[];
}

/** No change of another object than a workload. */
export const NO_OBJECT_CHANGES: ObjectChanges = { services: [], routes: [], configs: [] };

/** Prints plans with the changes of services and routes, as text and in the order of an apply. */
export async function showChanges(
  session: CliSession,
  plans: readonly Plan[],
  { services, routes }: Pick<ObjectChanges, 'services' | 'routes'> = NO_OBJECT_CHANGES,
): Promise<void> {
  const { style } = session;
  await session.print(
    [
      formatObjectChanges(SERVICE_CHANGES, services.filter(isPut), style),
      ...plans.map((plan) => formatPlannedChanges(plan, style)),
      formatObjectChanges(ROUTE_CHANGES, routes, style),
      formatObjectChanges(SERVICE_CHANGES, services.filter(isDeletion), style),
    ].join(''),
  );
}

/**
 * Prints predictions. In JSON or YAML, one prediction is an object, several are a list; with changes
 * of other objects, the object has a list of each kind.
 */
export async function printPrediction(
  session: CliSession,
  plans: readonly Plan[],
  changes: ObjectChanges,
): Promise<void> {
  if (!session.isStructured) return showChanges(session, plans, changes);
  const { services, routes, configs } = changes;
  const others = {
    ...toListJson('services', services, toObjectChangesJson),
    ...toListJson('routes', routes, toObjectChangesJson),
    ...toListJson('configs', configs, toConfigChangesJson),
  };
  const [only] = plans.map((plan) => toMessageJson(PlanSchema, plan));
  if (plans.length === 1 && only !== undefined && Object.keys(others).length === 0)
    await session.printValue(only);
  else
    await session.printValue({
      plans: plans.map((plan) => toMessageJson(PlanSchema, plan)),
      ...others,
    });
}

/** Returns a field with the JSON form of a list; no field for an empty list. */
function toListJson<Item>(
  name: string,
  items: readonly Item[],
  toJson: (items: readonly Item[]) => JsonValue,
): Record<string, JsonValue> {
  return items.length === 0 ? {} : { [name]: toJson(items) };
}
