import { chmod, readFile, writeFile } from 'node:fs/promises';
import { hostname as nodeName } from 'node:os';
import path from 'node:path';
import { CloudlessError, errorMessageOf, type ContainerId } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { makeDirectory } from '@cloudless/system';
import type { PlannedMount } from '../volumes/mount-paths.js';
import { hasOwnHostsFile, hostnameOf } from './config/network.js';
import { HOSTS_PATH, toNodeHosts, toPodHosts } from './config/hosts-text.js';

/** Name of the file in the directory of a container, beside its logs: removed and swept together with them. */
const FILE = 'hosts';
/** Whatever the user of the container is. */
const MODE = 0o644;

/**
 * The hosts files of containers, one for each: container runtimes otherwise mount a copy of the node's file, in which the
 * container's own name is missing. A file lies on the disk of the node from before the container is made until its removal, so
 * neither a restart of the agent nor one of the container runtime changes its content.
 */
export class HostsFiles {
  constructor(private readonly directoryOf: (containerId: ContainerId) => string) {}

  /**
   * Makes the file, still without the container's address, for the runtime to mount.
   * @returns Its mount; undefined when a volume of the request is mounted at `/etc/hosts` itself.
   * @throws kind `exhausted` when the disk is full, `precondition` when the file cannot be made otherwise.
   */
  async make(request: ContainerRequest): Promise<PlannedMount | undefined> {
    if (hasOwnHostsFile(request)) return undefined;
    const hostPath = this.fileOf(request);
    await written(hostPath, async () => {
      await makeDirectory(path.dirname(hostPath), 0o755);
      await writeFile(hostPath, '');
      await chmod(hostPath, MODE); // whatever the mask of this process is
    });
    return {
      containerPath: HOSTS_PATH,
      hostPath,
      readonly: request.security?.readOnlyRootFilesystem === true,
      selinuxRelabel: true,
    };
  }

  /**
   * Writes the content once the address is known, into the file that is mounted, so no later than the container starts.
   * @param ip - Of the sandbox; without meaning in the network of the node.
   * @throws As {@link HostsFiles.make}.
   */
  async fill(request: ContainerRequest, ip: string): Promise<void> {
    if (hasOwnHostsFile(request)) return;
    const file = this.fileOf(request);
    const text = await textOf(request, ip);
    // Never made anew: a start that failed meanwhile has removed the file for good.
    await written(file, () => writeFile(file, text, { flag: 'r+' }));
  }

  private fileOf({ containerId }: ContainerRequest): string {
    return path.join(this.directoryOf(containerId), FILE);
  }
}

async function textOf(request: ContainerRequest, ip: string): Promise<string> {
  const { hostNetwork = false, extraHosts = [] } = request.network ?? {};
  if (!hostNetwork) return toPodHosts({ hostname: hostnameOf(request), ip }, extraHosts);
  const nodeHosts = await readFile(HOSTS_PATH, 'utf8').catch(() => undefined);
  return toNodeHosts(nodeHosts, nodeName(), extraHosts);
}

async function written(file: string, write: () => Promise<void>): Promise<void> {
  try {
    await write();
  } catch (reason) {
    const { code = '' } = reason as NodeJS.ErrnoException;
    const kind = ['ENOSPC', 'EDQUOT'].includes(code) ? 'exhausted' : 'precondition';
    throw new CloudlessError(kind, `the hosts file ${file} cannot be written: ${errorMessageOf(reason)}`, { cause: reason });
  }
}
