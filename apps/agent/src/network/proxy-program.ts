import { join } from 'node:path';
import type { BackgroundProgram } from '@cloudless/app-kit/background';

/** Folder of the proxy in the data directory of an agent. */
export const NETWORK_FOLDER = 'network';
/** File for the error output of the proxy. */
export const ERROR_FILE = 'proxy.err';

/**
 * Describes the network proxy of a node as a program that its agent starts.
 * @param proxyCommand - Command of the proxy, to which the directory is appended.
 */
export function toProxyProgram(
  dataDir: string,
  proxyCommand: readonly string[],
): BackgroundProgram {
  const directory = join(dataDir, NETWORK_FOLDER);
  return {
    title: 'network proxy',
    directory,
    command: [...proxyCommand, directory],
    errorFile: ERROR_FILE,
  };
}
