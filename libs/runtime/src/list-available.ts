import type { AvailableContainers, ContainerRuntime } from './container-runtime.js';

/**
 * Lists the containers that a runtime can list now: for a runtime of several parts without those of
 * a part that has never answered.
 * @throws As `ContainerRuntime.list` and `ContainerRuntime.listAvailable`.
 */
export async function listAvailable(
  runtime: Pick<ContainerRuntime, 'list' | 'listAvailable'>,
): Promise<AvailableContainers> {
  return (await runtime.listAvailable?.()) ?? { containers: await runtime.list(), complete: true };
}
