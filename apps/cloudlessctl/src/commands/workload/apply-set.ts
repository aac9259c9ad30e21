import { create } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { DNS_LABEL_RULE, isDnsLabel } from '../../dns-label.js';
import { formatWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import { formatObjectName } from '../../object-name.js';
import { getTextOption, hasFlag } from '../options.js';
import { listAllPages } from '../page.js';
import { formatRouteName } from '../route/find-route.js';
import { formatServiceName } from '../service/find-service.js';
import { listAllWorkloads } from './fetch-workloads.js';
import type { ManifestObjects } from './read-manifests.js';

/**
 * Label that holds the set of a workload, service, route or config. `apply --set` writes it, and
 * `--prune` reads it.
 */
export const APPLY_SET_LABEL = 'apply-set';

/**
 * Returns the name of the set that `--set` gives to all objects of an apply; undefined without
 * `--set`.
 * @throws {@link CliFailure} with exit code 2 for an invalid name, for `--prune` without `--set`.
 */
export function readSetOption(invocation: Invocation): string | undefined {
  const name = getTextOption(invocation, 'set');
  if (name !== undefined && !isDnsLabel(name))
    throw createUsageFailure(`--set: expected ${DNS_LABEL_RULE}, got ${JSON.stringify(name)}`);
  if (hasFlag(invocation, 'prune') && name === undefined)
    throw createUsageFailure(
      '--prune deletes only workloads, services, routes and configs of one set: give the name with --set, also when the set is applied for the first time',
    );
  return name;
}

/**
 * Returns the workloads, services, routes and configs with the label of the set.
 * @throws {@link CliFailure} with exit code 2 when a manifest has the label of another set.
 */
export function addToSet(
  { workloads, services, routes, configs }: ManifestObjects,
  setName: string,
): ManifestObjects {
  return {
    workloads: workloads.map((workload) => {
      const labels = addSetLabel(formatWorkloadName(workload), workload.spec.labels, setName);
      const spec = create(WorkloadSpecSchema, { ...workload.spec, labels });
      return { ...workload, spec };
    }),
    services: addSetLabels(services, formatServiceName, setName),
    routes: addSetLabels(routes, formatRouteName, setName),
    configs: addSetLabels(configs, formatConfigName, setName),
  };
}

function addSetLabels<
  Item extends WorkloadName & { readonly labels: Readonly<Record<string, string>> },
>(items: readonly Item[], format: MemberFilter['format'], setName: string): readonly Item[] {
  return items.map((item) => ({
    ...item,
    labels: addSetLabel(format(item), item.labels, setName),
  }));
}

function addSetLabel(
  subject: string,
  labels: Readonly<Record<string, string>>,
  setName: string,
): Record<string, string> {
  const other = labels[APPLY_SET_LABEL];
  if (other !== undefined && other !== setName)
    throw createUsageFailure(
      `${subject}: the manifest has the label ${APPLY_SET_LABEL}=${other}, and --set is ${setName}; remove the label`,
    );
  return { ...labels, [APPLY_SET_LABEL]: setName };
}

/** A workload to delete, unless its spec changes before the deletion. */
export interface PrunedWorkload extends WorkloadName {
  readonly expectedGeneration: bigint;
}

/** Workloads, services, routes and configs that `--prune` deletes. */
export interface PrunedObjects {
  readonly workloads: readonly PrunedWorkload[];
  readonly services: readonly WorkloadName[];
  readonly routes: readonly WorkloadName[];
  readonly configs: readonly WorkloadName[];
}

/** No object to delete. */
export const NOTHING_PRUNED: PrunedObjects = {
  ...{ workloads: [], services: [], routes: [], configs: [] },
};

/**
 * Returns the workloads, services, routes and configs of the set that no manifest contains any more,
 * in the namespaces of the manifests and of the command line.
 * @throws {@link CliFailure} with exit code 4 when a manifest names an object of another set, so
 *   that two sets never delete each other's objects.
 */
export async function findObjectsToPrune(
  session: CliSession,
  { workloads, services, routes, configs }: ManifestObjects,
  setName: string,
  isPruned: boolean,
): Promise<PrunedObjects> {
  const namespaces = new Set([
    session.settings.namespace,
    ...[...workloads, ...services, ...routes, ...configs].map(({ namespace }) => namespace),
  ]);
  const listed = await listAllWorkloads(session, { labelSelector: APPLY_SET_LABEL });
  const members = findMembers(
    listed.map((workload) => ({ ...workload, labels: workload.spec?.labels ?? {} })),
    { applied: workloads, format: formatWorkloadName, setName, namespaces },
  );
  const listedServices = await listAllPages(
    (page) =>
      session.network.listServices(
        { labelSelector: APPLY_SET_LABEL, ...page },
        session.getCallOptions(),
      ),
    (page) => page.services,
  );
  const memberServices = findMembers(
    listedServices.filter(({ ownerWorkload }) => ownerWorkload === ''),
    { applied: services, format: formatServiceName, setName, namespaces },
  );
  const listedRoutes = await listIfImplemented(() =>
    listAllPages(
      (page) =>
        session.network.listRoutes(
          { labelSelector: APPLY_SET_LABEL, ...page },
          session.getCallOptions(),
        ),
      (page) => page.routes,
    ),
  );
  const memberRoutes = findMembers(listedRoutes, {
    ...{ applied: routes, format: formatRouteName, setName, namespaces },
  });
  const listedConfigs = await listIfImplemented(() =>
    listAllPages(
      (page) =>
        session.configs.listConfigs(
          { labelSelector: APPLY_SET_LABEL, ...page },
          session.getCallOptions(),
        ),
      (page) => page.configs,
    ),
  );
  const memberConfigs = findMembers(listedConfigs, {
    ...{ applied: configs, format: formatConfigName, setName, namespaces },
  });
  if (!isPruned) return NOTHING_PRUNED;
  return {
    workloads: members
      .filter(({ deletionRequestedAt }) => deletionRequestedAt === undefined)
      .map(({ namespace, name, generation }) => ({
        ...{ namespace, name, expectedGeneration: generation },
      })),
    services: memberServices.map(({ namespace, name }) => ({ namespace, name })),
    routes: memberRoutes.map(({ namespace, name }) => ({ namespace, name })),
    configs: memberConfigs.map(({ namespace, name }) => ({ namespace, name })),
  };
}

/** Returns what a call lists; empty for a coordinator that does not have the kind of object yet. */
async function listIfImplemented<Item>(
  list: () => Promise<readonly Item[]>,
): Promise<readonly Item[]> {
  try {
    return await list();
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.Unimplemented) return [];
    throw reason;
  }
}

function formatConfigName(name: WorkloadName): string {
  return formatObjectName('config', name);
}

/** Filter of {@link findMembers}: the set, its namespaces, and the objects that were applied. */
interface MemberFilter {
  readonly applied: readonly WorkloadName[];
  format(name: WorkloadName): string;
  readonly setName: string;
  readonly namespaces: ReadonlySet<string>;
}

/** Returns the members of a set in the namespaces that are not applied. */
function findMembers<
  Item extends WorkloadName & { readonly labels: Readonly<Record<string, string>> },
>(items: readonly Item[], { applied, format, setName, namespaces }: MemberFilter): readonly Item[] {
  const names = new Set(applied.map(format));
  for (const item of items) {
    const owner = item.labels[APPLY_SET_LABEL] ?? '';
    if (owner === setName || !names.has(format(item))) continue;
    throw new CliFailure(
      ExitCode.conflict,
      `${format(item)} belongs to the set ${owner}, not to ${setName}; remove it from the manifests of one set, or first apply its manifest without --set`,
    );
  }
  return items.filter(
    (item) =>
      namespaces.has(item.namespace) &&
      item.labels[APPLY_SET_LABEL] === setName &&
      !names.has(format(item)),
  );
}
