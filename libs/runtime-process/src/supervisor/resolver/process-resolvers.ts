import { CloudlessError, type Log } from '@cloudless/base';
import type { MountTools, OwnMounts } from './own-mounts.js';
import type { MountSupport } from './mount-tools.js';
import { ResolverKeeper, type ResolverHolder } from './resolver-keeper.js';
import {
  planResolverMounts,
  RESOLVER_PATHS,
  writeResolverFiles,
  type ResolverPaths,
} from './resolver-mounts.js';
import type { DnsSettings } from './resolver-text.js';

/** Arguments of {@link ProcessResolvers}. */
export interface ProcessResolversOptions {
  readonly support: MountSupport;
  /** Absolute path. Unused when there is no support. */
  readonly shell: string;
  readonly log: Log;
  /** Default: {@link RESOLVER_PATHS}. */
  readonly paths?: ResolverPaths;
}

/**
 * Gives processes a resolv.conf of their own, each in its own mount namespace, so that names of
 * services resolve in processes while the machine keeps its resolv.conf.
 */
export class ProcessResolvers {
  private readonly paths: ResolverPaths;
  private readonly keeper: ResolverKeeper | undefined;

  constructor(private readonly options: ProcessResolversOptions) {
    const { support, shell, log, paths = RESOLVER_PATHS } = options;
    this.paths = paths;
    this.keeper =
      'tools' in support
        ? new ResolverKeeper({ tools: support.tools, shell, paths, log })
        : undefined;
  }

  /** Undefined where processes cannot have mounts of their own. */
  get mountTools(): MountTools | undefined {
    const { support } = this.options;
    return 'tools' in support ? support.tools : undefined;
  }

  /**
   * Writes the resolv.conf of a process.
   * @param directory - For the file; created.
   * @returns The mounts with which the process reads the file.
   * @throws kind `unimplemented` without the rights or the tools, `precondition` when the machine
   *   has no resolv.conf; errors of the file system as they are.
   */
  prepare(directory: string, settings: DnsSettings): OwnMounts {
    const { support } = this.options;
    if ('problem' in support) throw new CloudlessError('unimplemented', support.problem);
    const mounts = planResolverMounts(directory, this.paths);
    writeResolverFiles(directory, settings, this.paths);
    return { tools: support.tools, mounts };
  }

  /** See {@link ResolverKeeper.check}. Does nothing without support. */
  check(listHolders: () => readonly ResolverHolder[]): Promise<void> {
    return this.keeper?.check(listHolders) ?? Promise.resolve();
  }
}
