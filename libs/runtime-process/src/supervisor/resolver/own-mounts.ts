/** Absolute paths of the programs by which a process gets mounts of its own. */
export interface MountTools {
  readonly unshare: string;
  readonly nsenter: string;
  readonly mount: string;
}

/** Makes a file or a directory visible at another path. */
export interface BindMount {
  readonly source: string;
  readonly target: string;
}

/** Mounts that only one process and its descendants see. */
export interface OwnMounts {
  readonly tools: MountTools;
  readonly mounts: readonly BindMount[];
}

/**
 * Arguments of unshare before the program: a mount namespace of its own, in which later mounts of the
 * machine appear where the machine shares its mounts, while mounts of the process stay in it.
 */
export const UNSHARE_ARGUMENTS: readonly string[] = ['--mount', '--propagation', 'slave', '--'];
