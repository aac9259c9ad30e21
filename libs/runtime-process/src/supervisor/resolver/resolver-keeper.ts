import { realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { errorFields, quoteForShell, type Log } from '@cloudless/base';
import { readMountNamespace } from '../process/launch-context.js';
import { runMountTool } from './mount-tools.js';
import type { MountTools } from './own-mounts.js';
import {
  identifyResolverFile,
  planResolverMounts,
  RESOLVED_NAMES,
  type ResolverPaths,
} from './resolver-mounts.js';

/** A running process with mounts of its own. */
export interface ResolverHolder {
  readonly containerId: string;
  readonly pid: number;
  /** Identity of its mount namespace; see `readMountNamespace`. */
  readonly mountNamespace: string;
  /** Directory with its resolv.conf. */
  readonly directory: string;
}

/** Arguments of {@link ResolverKeeper}. */
export interface ResolverKeeperDeps {
  readonly tools: MountTools;
  readonly shell: string;
  readonly paths: ResolverPaths;
  readonly log: Log;
}

/**
 * Mounts the resolv.conf of running processes again when a program of the machine, such as a DHCP
 * client, has replaced the resolv.conf of the machine: the kernel removes the mounts at the former
 * file.
 */
export class ResolverKeeper {
  /** Identity of the file of the machine at the last check. */
  private lastFile: string | undefined;
  private checking: Promise<void> = Promise.resolve();
  /** Ids of the containers without their mounts, whose failure was logged. */
  private readonly failed = new Set<string>();

  constructor(private readonly deps: ResolverKeeperDeps) {}

  /**
   * Checks the processes if the file of the machine is another one than at the last call, and at the
   * first call. A failure is logged once, and the next call tries again.
   * @param listHolders - Called at once, and only for a check.
   */
  check(listHolders: () => readonly ResolverHolder[]): Promise<void> {
    const file = identifyResolverFile(this.deps.paths);
    if (file !== this.lastFile && file !== '') {
      this.lastFile = file;
      const holders = listHolders();
      this.checking = this.checking.then(async () => {
        this.forgetEnded(holders);
        for (const holder of holders) await this.restore(holder);
        if (this.failed.size > 0) this.lastFile = undefined;
      });
    }
    return this.checking;
  }

  private forgetEnded(holders: readonly ResolverHolder[]): void {
    const ids = new Set(holders.map(({ containerId }) => containerId));
    for (const id of this.failed) if (!ids.has(id)) this.failed.delete(id);
  }

  private async restore(holder: ResolverHolder): Promise<void> {
    const { tools, shell, paths, log } = this.deps;
    const { containerId, pid, mountNamespace, directory } = holder;
    if (seesOwnFile(holder, paths) || readMountNamespace(pid) !== mountNamespace)
      return void this.failed.delete(containerId);
    try {
      const lines = planResolverMounts(directory, paths).map(({ source, target }) => {
        const [from, to] = [quoteForShell(source), quoteForShell(target)];
        return `[ ${from} -ef ${to} ] || ${quoteForShell(tools.mount)} --bind ${from} ${to} || exit`;
      });
      const entry = [`--mount=/proc/${pid}/ns/mnt`, '--', shell, '-c'];
      await runMountTool(tools.nsenter, [...entry, [...lines, ':'].join('\n')]);
      this.failed.delete(containerId);
      log.info('resolver of a container mounted again', { containerId });
    } catch (reason) {
      if (readMountNamespace(pid) !== mountNamespace) return; // the process has ended
      if (this.failed.has(containerId)) return;
      this.failed.add(containerId);
      log.warn('resolver of a container not mounted again', {
        containerId,
        ...errorFields(reason),
      });
    }
  }
}

/** Returns true when the process reads its own file at the path of the file of the machine. */
function seesOwnFile({ pid, directory }: ResolverHolder, { file }: ResolverPaths): boolean {
  try {
    // An absolute link below /proc would lead to the file of this process.
    const seen = statSync(`/proc/${pid}/root${realpathSync(file)}`);
    return RESOLVED_NAMES.some((name) => {
      const own = statSync(path.join(directory, name));
      return own.dev === seen.dev && own.ino === seen.ino;
    });
  } catch {
    return false;
  }
}
