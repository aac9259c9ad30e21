import type { CgroupLayout } from '../hierarchy/hierarchy.js';

/** Files of one machine about one container, recorded or written after the kernel documentation. */
export interface RecordedGroup {
  /** Name for test titles: cgroup layout and kernel. */
  readonly name: string;
  readonly layout: CgroupLayout;
  /** Pid of a process in the container. */
  readonly pid: number;
  /** Texts of the files by absolute path. */
  readonly files: Readonly<Record<string, string>>;
}

/**
 * Creates a group from one text with all files.
 * @param tree - For each file a line `== /path`, then the content of the file.
 */
export function recorded(properties: Omit<RecordedGroup, 'files'>, tree: string): RecordedGroup {
  const files = tree
    .split(/^== /m)
    .slice(1)
    .map(
      (part) => [part.slice(0, part.indexOf('\n')), part.slice(part.indexOf('\n') + 1)] as const,
    );
  return { ...properties, files: Object.fromEntries(files) };
}
