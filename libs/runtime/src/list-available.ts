import type { AvailableContainers, ContainerRuntime } from './container-runtime.js';

/**
 * Lists the containers that a runtime can list now. The containers of a part that has never
 * answered are missing.
 * @throws The errors of `ContainerRuntime.list` and `ContainerRuntime.listAvailable`.
 */
export async function listAvailable(
  runtime: Pick<ContainerRuntime, 'list' | 'listAvailable'>,
): Promise<AvailableContainers> {
  return (await runtime.listAvailable?.()) ?? { containers: await runtime.list(), missing: [] };
}
