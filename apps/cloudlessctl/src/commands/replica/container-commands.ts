import { ContainerStatusSchema, type ContainerStatus } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatContainerTable } from '../../views/container-view.js';
import { parseWorkloadName } from '../../names.js';
import { printObjects } from '../general/list-objects.js';
import type { ObjectKind } from '../general/list-objects.js';
import { hasFlag, getTextOption } from '../options.js';

/**
 * Shows the current container of each replica, as last reported by the agents.
 * @param names - Prefixes of container ids; the options that select containers are then ignored.
 *   Empty: all containers that the options select.
 */
export async function showContainers(
  invocation: Invocation,
  names: readonly string[],
): Promise<void> {
  const { session } = invocation;
  const { containers } = await session.agents.listContainers({}, session.getCallOptions());
  const selected = containers.filter((container) => isSelected(invocation, container));
  const shown =
    names.length === 0 ? selected : names.map((name) => requireContainer(containers, name));
  await printObjects(invocation, CONTAINER_KIND, shown, 'no containers');
}

const CONTAINER_KIND: ObjectKind<ContainerStatus> = {
  plural: 'containers',
  fields: ContainerStatusSchema.fields.map(({ jsonName }) => jsonName),
  toJson: (container) => toMessageJson(ContainerStatusSchema, container),
  formatTable: (containers, session) =>
    formatContainerTable(
      containers,
      session.nowMs,
      session.style,
      session.settings.output === 'wide',
    ),
};

function isSelected(
  invocation: Invocation,
  { namespace, workload, nodeId }: ContainerStatus,
): boolean {
  const { settings } = invocation.session;
  const node = getTextOption(invocation, 'node');
  const workloadText = getTextOption(invocation, 'workload');
  const workloadName =
    workloadText === undefined ? undefined : parseWorkloadName(workloadText, settings.namespace);
  if (node !== undefined && nodeId !== node) return false;
  if (workloadName !== undefined)
    return workload === workloadName.name && namespace === workloadName.namespace;
  return hasFlag(invocation, 'allNamespaces') || namespace === settings.namespace;
}

/** Returns the only container whose id begins with `prefix`. */
function requireContainer(containers: readonly ContainerStatus[], prefix: string): ContainerStatus {
  const [found, another] = containers.filter(({ containerId }) => containerId.startsWith(prefix));
  if (found === undefined)
    throw createUsageFailure(`no container has an id that begins with ${JSON.stringify(prefix)}`);
  if (another !== undefined)
    throw createUsageFailure(
      `several containers have an id that begins with ${JSON.stringify(prefix)}; give more digits`,
    );
  return found;
}
