import type { CgroupLayout } from '../hierarchy.js';

/** The files of one machine that speak about one container. */
export interface RecordedGroup {
  readonly name: string;
  readonly layout: CgroupLayout;
  /** A process in the container. */
  readonly pid: number;
  /** Text of each file, by its path. */
  readonly files: Readonly<Record<string, string>>;
}

/** Reads a tree of files out of one text: `== /path`, then what the file holds. */
export function recorded(about: Omit<RecordedGroup, 'files'>, tree: string): RecordedGroup {
  const files = tree
    .split(/^== /m)
    .slice(1)
    .map(
      (part) => [part.slice(0, part.indexOf('\n')), part.slice(part.indexOf('\n') + 1)] as const,
    );
  return { ...about, files: Object.fromEntries(files) };
}
