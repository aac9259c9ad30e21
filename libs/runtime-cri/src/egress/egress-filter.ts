import { open, stat, type FileHandle } from 'node:fs/promises';
import { CloudlessError } from '@cloudless/base';
import { EGRESS_CAPABILITY, type EgressRule } from '@cloudless/runtime';
import { isRunning, type ProcessIdentity } from '../system/host-processes.js';
import { KeyedMutex } from '../system/keyed-mutex.js';
import { errorTextOf, runTool } from '../system/run-tool.js';
import { readDnsServers } from './dns-servers.js';
import { toFilterText } from './filter-text.js';

/** Requirements of the capability `network.egress`, for messages. */
export const EGRESS_NEEDS =
  'its agent needs root, the programs nft, nsenter and unshare, a kernel with nf_tables, and containerd with runc';

/** Loads packet filters into the networks of running sandboxes, one at a time for each sandbox. */
export class EgressFilter {
  private readonly locks = new KeyedMutex();

  /**
   * Replaces the packet filter in the network of a sandbox: all of it, or nothing. Calls for one
   * sandbox take effect in the order of the calls.
   * @param sandbox - Process that holds the network of the container.
   * @throws kind `invalid` for a rule that is not valid, `precondition` when the sandbox has ended
   *   or the kernel refuses the filter.
   */
  async apply(sandbox: ProcessIdentity, rules: readonly EgressRule[]): Promise<void> {
    const release = await this.locks.lock(String(sandbox.pid));
    try {
      const text = toFilterText(rules, await readDnsServers());
      const network = await openNetwork(sandbox);
      try {
        await loadFilter(network, text);
      } finally {
        await network.close();
      }
    } finally {
      release();
    }
  }
}

/** Creates the error for a limit on a node that cannot filter packets. */
export function createEgressUnimplementedError(): CloudlessError {
  return new CloudlessError(
    'unimplemented',
    `network.egress: this node lacks the capability ${EGRESS_CAPABILITY}: ${EGRESS_NEEDS}`,
  );
}

/**
 * Opens the network of a sandbox. The open file stands for this network, also when the process ends
 * and its id goes to another process.
 */
async function openNetwork(sandbox: ProcessIdentity): Promise<FileHandle> {
  const network = await open(`/proc/${sandbox.pid}/ns/net`, 'r').catch((reason: unknown) => {
    throw createFilterError('the sandbox of the container has ended', reason);
  });
  try {
    if (!isRunning(sandbox)) throw createFilterError('the sandbox of the container has ended');
    const [found, own] = await Promise.all([network.stat(), stat('/proc/self/ns/net')]);
    if (found.dev === own.dev && found.ino === own.ino)
      throw createFilterError('the sandbox of the container is in the network of the agent');
    return network;
  } catch (reason) {
    await network.close();
    throw reason;
  }
}

async function loadFilter(network: FileHandle, text: string): Promise<void> {
  const file = `--net=/proc/${process.pid}/fd/${network.fd}`;
  try {
    await runTool('nsenter', [file, 'nft', '-f', '-'], text);
  } catch (reason) {
    throw createFilterError(`the packet filter cannot be set: ${errorTextOf(reason)}`, reason);
  }
}

function createFilterError(message: string, cause?: unknown): CloudlessError {
  return new CloudlessError('precondition', `network.egress: ${message}`, { cause });
}
