import { chmod, readFile, writeFile } from 'node:fs/promises';
import { hostname as nodeName } from 'node:os';
import path from 'node:path';
import { CloudlessError, errorCodeOf, errorMessageOf, type ContainerId } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { makeDirectory } from '@cloudless/app-kit';
import type { ContainerMount } from '../volumes/mount-paths.js';
import { hasHostsFileVolume, resolveHostname } from './config/network.js';
import { HOSTS_PATH, toNodeHosts, toPodHosts } from './config/hosts-text.js';

/**
 * Name of the hosts file in the log directory of a container. The file is removed with the
 * directory.
 */
const FILE = 'hosts';
/** Mode of the hosts file: every user of the container may read the file. */
const MODE = 0o644;

/**
 * Writes a hosts file for each container. Without this file, container runtimes mount a copy of the
 * hosts file of the node, which lacks the host name of the container. The file exists until the
 * container is removed, so a restart of the agent or of the container runtime does not change the
 * file.
 */
export class HostsFiles {
  /** @param getDirectory - Returns the log directory of a container. */
  constructor(private readonly getDirectory: (containerId: ContainerId) => string) {}

  /**
   * Creates an empty file that the container runtime can mount.
   * @returns The mount of the file; undefined when a volume of the request is mounted at
   *   `/etc/hosts` itself.
   * @throws kind `exhausted` when the disk is full, `precondition` when the file cannot be created
   *   for another reason.
   */
  async create(request: ContainerRequest): Promise<ContainerMount | undefined> {
    if (hasHostsFileVolume(request)) return undefined;
    const hostPath = this.getFile(request);
    await writeHostsFile(hostPath, async () => {
      await makeDirectory(path.dirname(hostPath), 0o755);
      await writeFile(hostPath, '');
      await chmod(hostPath, MODE); // independent of the umask of this process
    });
    return {
      containerPath: HOSTS_PATH,
      hostPath,
      readonly: request.security?.readOnlyRootFilesystem === true,
      selinuxRelabel: true,
    };
  }

  /**
   * Writes the content into the mounted file. Call it between the creation of the sandbox, which
   * determines the address, and the start of the container.
   * @param ip - IP address of the sandbox; may be empty. Ignored in the network of the node.
   * @throws The same errors as {@link HostsFiles.create}.
   */
  async fill(request: ContainerRequest, ip: string): Promise<void> {
    if (hasHostsFileVolume(request)) return;
    const file = this.getFile(request);
    const text = await renderHosts(request, ip);
    // Flag `r+` does not create the file, which a start that failed meanwhile has removed.
    await writeHostsFile(file, () => writeFile(file, text, { flag: 'r+' }));
  }

  private getFile({ containerId }: ContainerRequest): string {
    return path.join(this.getDirectory(containerId), FILE);
  }
}

async function renderHosts(request: ContainerRequest, ip: string): Promise<string> {
  const { hostNetwork = false, extraHosts = [] } = request.network ?? {};
  if (!hostNetwork) return toPodHosts({ hostname: resolveHostname(request), ip }, extraHosts);
  const nodeHosts = await readFile(HOSTS_PATH, 'utf8').catch(() => undefined);
  return toNodeHosts(nodeHosts, nodeName(), extraHosts);
}

async function writeHostsFile(file: string, write: () => Promise<void>): Promise<void> {
  try {
    await write();
  } catch (reason) {
    const isFull = ['ENOSPC', 'EDQUOT'].includes(errorCodeOf(reason) ?? '');
    const kind = isFull ? 'exhausted' : 'precondition';
    throw new CloudlessError(
      kind,
      `the hosts file ${file} cannot be written: ${errorMessageOf(reason)}`,
      { cause: reason },
    );
  }
}
