import type { CgroupLayout } from '../hierarchy/hierarchy.js';

/** Recorded files of one machine about one container. */
export interface RecordedGroup {
  readonly name: string;
  readonly layout: CgroupLayout;
  /** Pid of a process in the container. */
  readonly pid: number;
  /** Text of each file by path. */
  readonly files: Readonly<Record<string, string>>;
}

/** Parses a tree of files from one text: a line `== /path`, then the content of the file. */
export function recorded(about: Omit<RecordedGroup, 'files'>, tree: string): RecordedGroup {
  const files = tree
    .split(/^== /m)
    .slice(1)
    .map(
      (part) => [part.slice(0, part.indexOf('\n')), part.slice(part.indexOf('\n') + 1)] as const,
    );
  return { ...about, files: Object.fromEntries(files) };
}
