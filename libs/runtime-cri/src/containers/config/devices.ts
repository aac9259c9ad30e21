import { stat } from 'node:fs/promises';
import { CloudlessError } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';

/**
 * Validates the requested devices.
 * @throws kind `invalid`, naming the device.
 */
export function checkDevices({ devices = [] }: Pick<ContainerRequest, 'devices'>): void {
  const containerPaths = new Set<string>();
  for (const { hostPath, containerPath, permissions } of devices) {
    const createError = (message: string): CloudlessError =>
      new CloudlessError('invalid', `devices.${hostPath}: ${message}`);
    if (!hostPath.startsWith('/') || !containerPath.startsWith('/'))
      throw createError('both paths must be absolute');
    if (!/^(?=.)r?w?m?$/.test(permissions))
      throw createError('permissions must be some of r, w and m');
    if (containerPaths.has(containerPath)) throw createError(`${containerPath} is used twice`);
    containerPaths.add(containerPath);
  }
}

/**
 * Checks that the requested devices exist on this machine.
 * @throws kind `precondition` for a path that does not exist or is not a device.
 */
export async function requireDevices({
  devices = [],
}: Pick<ContainerRequest, 'devices'>): Promise<void> {
  for (const { hostPath } of devices) {
    const stats = await stat(hostPath).catch(() => undefined);
    if (stats?.isCharacterDevice() === true || stats?.isBlockDevice() === true) continue;
    throw new CloudlessError('precondition', `devices.${hostPath}: is not a device on this node`);
  }
}
