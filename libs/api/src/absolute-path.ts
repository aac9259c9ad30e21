import { posix } from 'node:path';

/**
 * What is wrong with a path that must be absolute and say each step once, so that two texts never
 * mean one place.
 */
export function absolutePathProblem(text: string): string | undefined {
  if (!text.startsWith('/')) return 'must be an absolute path';
  if (/\p{Cc}/u.test(text)) return 'must not contain control characters';
  const straight = posix.normalize(text).replace(/(?<=.)\/$/, '');
  return straight === text
    ? undefined
    : `must be written as "${straight}", without ".", ".." and needless slashes`;
}

/** Whether a path is this directory or below it. */
export function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}
