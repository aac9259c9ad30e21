import { ContainerStatusSchema, type ContainerStatus } from '@cloudless/api';
import type { Invocation } from '../command-tree.js';
import { usageFailure } from '../failure.js';
import { messageJson } from '../session.js';
import { containerTable } from '../views/container-view.js';
import { parseWorkloadName } from '../names.js';
import { flagOption, textOption } from './options.js';

/**
 * Shows the current container of each replica, as last reported by its agent.
 * @param names - Prefixes of container ids. Empty: all containers that the options select.
 */
export async function showContainers(
  invocation: Invocation,
  names: readonly string[],
): Promise<void> {
  const { session } = invocation;
  const { containers } = await session.agents.listContainers({}, session.callOptions());
  const wanted = containers.filter((container) => isWanted(invocation, container));
  const found = names.length === 0 ? wanted : names.map((name) => withPrefix(containers, name));
  if (session.structured) {
    return session.printValue({
      containers: found.map((each) => messageJson(ContainerStatusSchema, each)),
    });
  }
  if (found.length === 0) return session.note('no containers');
  await session.print(containerTable(found, session.nowMs, session.settings.output === 'wide'));
}

function isWanted(
  invocation: Invocation,
  { namespace, workload, nodeId }: ContainerStatus,
): boolean {
  const { settings } = invocation.session;
  const node = textOption(invocation, 'node');
  const given = textOption(invocation, 'workload');
  const named = given === undefined ? undefined : parseWorkloadName(given, settings.namespace);
  if (node !== undefined && nodeId !== node) return false;
  if (named !== undefined) return workload === named.name && namespace === named.namespace;
  return flagOption(invocation, 'allNamespaces') || namespace === settings.namespace;
}

function withPrefix(containers: readonly ContainerStatus[], prefix: string): ContainerStatus {
  const [found, another] = containers.filter(({ containerId }) => containerId.startsWith(prefix));
  if (found === undefined)
    throw usageFailure(`no container has an id that begins with ${JSON.stringify(prefix)}`);
  if (another !== undefined)
    throw usageFailure(
      `several containers have an id that begins with ${JSON.stringify(prefix)}; give more digits`,
    );
  return found;
}
