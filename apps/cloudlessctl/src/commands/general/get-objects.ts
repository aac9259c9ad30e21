import { createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import type { Kind } from '../../kinds.js';

/** Kinds with a group of commands of their own, whose list and display `get` and `describe` call. */
export type GroupedKind = Extract<
  Kind,
  'service' | 'route' | 'secret' | 'config' | 'policy' | 'plan'
>;

type Action = (invocation: Invocation) => Promise<void>;

/** The commands of a kind. The operands of `get` and `describe` are the names. */
interface KindCommands {
  readonly list: Action;
  readonly get: Action;
  /** Absent: `describe` shows the objects of the kind as `get` does. */
  readonly describe?: Action;
}

/** Loads the commands of a kind on use: `get` of another kind does not need them. */
const LOADERS: Readonly<Record<GroupedKind, () => Promise<KindCommands>>> = {
  service: async () => {
    const shown = await import('../service/show-services.js');
    const { listServices, getServices, describeService } = shown;
    return { list: listServices, get: getServices, describe: describeService };
  },
  route: async () => {
    const { listRoutes, getRoutes, describeRoute } = await import('../route/show-routes.js');
    return { list: listRoutes, get: getRoutes, describe: describeRoute };
  },
  secret: async () => {
    const { listSecrets, getSecrets, describeSecret } = await import('../secret/show-secrets.js');
    return { list: listSecrets, get: getSecrets, describe: describeSecret };
  },
  config: async () => {
    const { listConfigs, getConfigs, describeConfig } = await import('../config/show-configs.js');
    return { list: listConfigs, get: getConfigs, describe: describeConfig };
  },
  policy: async () => {
    const { listPolicies, getPolicies } = await import('../policy/show-policies.js');
    return { list: listPolicies, get: getPolicies };
  },
  plan: async () => {
    const { listPlans, showPlan } = await import('../plan/show-plans.js');
    return { list: listPlans, get: showPlan };
  },
};

/** Returns true for a kind with a group of commands of its own. */
export function isGroupedKind(kind: Kind): kind is GroupedKind {
  return Object.hasOwn(LOADERS, kind);
}

/**
 * Lists the objects of a kind, or shows those with the given names, as the commands of the kind do.
 * @throws {@link CliFailure} with exit code 2 for more than one plan.
 */
export async function getObjects(
  invocation: Invocation,
  kind: GroupedKind,
  names: readonly string[],
): Promise<void> {
  if (kind === 'plan' && names.length > 1)
    throw createUsageFailure('plans are shown one at a time: give one id, or none to list them');
  const { list, get } = await LOADERS[kind]();
  await (names.length === 0 ? list : get)({ ...invocation, operands: [...names] });
}

/** Shows the details of an object. */
export async function describeObject(
  invocation: Invocation,
  kind: GroupedKind,
  name: string,
): Promise<void> {
  const { get, describe = get } = await LOADERS[kind]();
  await describe({ ...invocation, operands: [name] });
}
