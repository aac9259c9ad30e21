import { ConnectError, Code } from '@connectrpc/connect';
import { WorkloadStatus_Phase } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { formatWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';
import { waitUntilDeleted } from '../../wait/wait-workload.js';
import { getListOption, getTextOption, hasFlag } from '../options.js';
import { formatCount } from '../../output/human.js';
import { formatObjectName } from '../../object-name.js';
import { deleteConfig } from '../config/apply-configs.js';
import { changeEach } from '../change-each.js';
import { deleteNamed } from '../objects/execute-changes.js';
import type { DeleteChange } from '../objects/object-change.js';
import { handleChangeOptions } from '../plan/plan-options.js';
import type { ObjectChanges } from '../plan/show-changes.js';
import { ROUTE_CHANGES } from '../route/apply-routes.js';
import { SERVICE_CHANGES } from '../service/apply-services.js';
import { printWorkloads } from './list-workloads.js';
import { readManifests } from './read-manifests.js';
import { selectWorkloads } from './select-workloads.js';

/**
 * Deletes workloads: those that are named, with `-l` those with these labels, with `-f` those of
 * manifests. Routes of manifests end first, so that no request is sent to replicas that stop; services
 * and configs end after the workloads. `delete workload web` means the same as `delete web`. With
 * `--wait`, returns when the workloads have no replicas left.
 */
export async function deleteWorkloads(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const { workloads: names, services, routes, configs } = await findObjects(invocation);
  const createChanges = () =>
    names.map(({ namespace, name }) => ({
      change: { case: 'delete' as const, value: { namespace, name } },
    }));
  // A selector or a file may name more workloads than the user has in mind.
  const isNamed =
    getTextOption(invocation, 'selector') === undefined &&
    getListOption(invocation, 'filename').length === 0;
  const confirmation = isNamed
    ? {}
    : { question: `Delete ${describeCounts({ workloads: names, services, routes, configs })}?` };
  const readOthers = async (): Promise<ObjectChanges> => ({
    services: services.map(toDeletion),
    routes: routes.map(toDeletion),
    configs: configs.map(toDeletion),
  });
  if (await handleChangeOptions(invocation, createChanges, confirmation, readOthers)) return;
  const deletedRoutes = await deleteNamed(invocation, ROUTE_CHANGES, routes);
  const deleted = await changeEach(session, names, {
    describe: formatWorkloadName,
    change: (name, requestId) => deleteWorkload(invocation, name, requestId),
  });
  const existing = deleted.results.filter((workload) => workload !== undefined);
  // A config cannot be deleted while a workload uses the config.
  const waits = hasFlag(invocation, 'wait') || configs.length > 0;
  const gone = waits
    ? await changeEach<Workload, void>(session, existing, {
        describe: formatWorkloadName,
        change: (workload) => waitUntilGone(session, workload),
      })
    : undefined;
  const deletedServices = await deleteNamed(invocation, SERVICE_CHANGES, services);
  const deletedConfigs = await changeEach(session, configs, {
    describe: (name) => formatObjectName('config', name),
    change: (name) => deleteConfig(session, name),
  });
  if (session.isStructured) await printWorkloads(session, existing);
  deletedRoutes.throwFailure();
  deleted.throwFailure();
  gone?.throwFailure();
  deletedServices.throwFailure();
  deletedConfigs.throwFailure();
}

/** Returns the numbers in words: `2 workloads`, `1 workload and 1 service`. */
function describeCounts({ workloads, services, routes, configs }: NamedObjects): string {
  const counts = (
    [
      [workloads.length, 'workload'],
      [services.length, 'service'],
      [routes.length, 'route'],
      [configs.length, 'config'],
    ] as const
  ).filter(([count]) => count > 0);
  if (counts.length === 0) return formatCount(0, 'workload');
  return counts.map(([count, noun]) => formatCount(count, noun)).join(' and ');
}

function toDeletion({ namespace, name }: WorkloadName): DeleteChange {
  return { namespace, name, action: 'DELETE' };
}

/** Names of the objects of one deletion. */
interface NamedObjects {
  readonly workloads: readonly WorkloadName[];
  /** Only from manifests: `service delete` takes names. */
  readonly services: readonly WorkloadName[];
  /** Only from manifests: `route delete` takes names. */
  readonly routes: readonly WorkloadName[];
  /** Only from manifests: `config delete` takes names. */
  readonly configs: readonly WorkloadName[];
}

async function findObjects(invocation: Invocation): Promise<NamedObjects> {
  const { session, operands } = invocation;
  const [first = '', ...others] = operands;
  const selector = getTextOption(invocation, 'selector');
  const filenames = getListOption(invocation, 'filename');
  const isSelected = selector !== undefined || filenames.length > 0;
  const startsWithKind =
    (others.length > 0 || isSelected) && ['workload', 'workloads'].includes(first);
  const texts = startsWithKind ? others : operands;
  if (filenames.length === 0)
    return {
      ...{ services: [], routes: [], configs: [] },
      workloads: await selectWorkloads(invocation, texts),
    };
  const given = texts.length > 0 ? texts.join(' ') : selector === undefined ? '' : `-l ${selector}`;
  if (given !== '')
    throw createUsageFailure(`-f names the objects to delete: remove ${given} or -f`);
  return readManifests(session, filenames, 'nothing was deleted');
}

/**
 * Deletes one workload and prints its status line, unless `--wait` prints it later.
 * @returns Undefined when the workload does not exist, with `--ignore-not-found`.
 */
async function deleteWorkload(
  invocation: Invocation,
  { namespace, name }: WorkloadName,
  requestId: string,
): Promise<Workload | undefined> {
  const { session } = invocation;
  try {
    const workload = await session.client.deleteWorkload(
      { namespace, name, requestId },
      session.getCallOptions(),
    );
    const isStopping = workload.status?.phase === WorkloadStatus_Phase.TERMINATING;
    if (!hasFlag(invocation, 'wait'))
      await session.printStatus(
        `${formatWorkloadName(workload)}: ${isStopping ? 'is being deleted' : 'deleted'}`,
      );
    return workload;
  } catch (reason) {
    const isMissing = reason instanceof ConnectError && reason.code === Code.NotFound;
    if (!isMissing || !hasFlag(invocation, 'ignoreNotFound')) throw reason;
    await session.printStatus(`${formatWorkloadName({ namespace, name })}: not found`);
    return undefined;
  }
}

/** Waits until the workload has no replicas, and stores those that may still run in its status. */
async function waitUntilGone(session: CliSession, workload: Workload): Promise<void> {
  const remaining = await waitUntilDeleted(session, workload);
  if (workload.status !== undefined) Object.assign(workload.status, remaining);
}
