/** One line of a mount table. Paths are decoded. */
export interface MountLine {
  /** Major and minor number of the file system, which are the same in every mount namespace. */
  readonly device: string;
  /** Path within the file system that is mounted; `/` for the whole file system. */
  readonly root: string;
  /** Absolute path. */
  readonly mountPoint: string;
  /** Type of the file system, such as `tmpfs` or `cgroup2`. */
  readonly type: string;
  /** Options of the file system, separated by commas; empty when there are none. */
  readonly superOptions: string;
}

/**
 * Parses one line of `/proc/<pid>/mountinfo`.
 * @returns Undefined when the line does not have the documented fields, as an empty line.
 * @see proc_pid_mountinfo(5): after the separator `-` follow the type, the source and the options
 *   of the file system
 */
export function parseMountLine(line: string): MountLine | undefined {
  const [before = '', after] = line.split(' - ', 2);
  const [, , device = '', root, mountPoint] = before.split(' ', 5);
  if (root === undefined || mountPoint === undefined || after === undefined) return undefined;
  const [type = '', , superOptions = ''] = after.split(' ', 3);
  return {
    device,
    root: decodeMountPath(root),
    mountPoint: decodeMountPath(mountPoint),
    type,
    superOptions,
  };
}

/** The kernel writes space, tab, newline and backslash as a backslash and three octal digits. */
function decodeMountPath(path: string): string {
  return path.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}
