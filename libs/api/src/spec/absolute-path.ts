import { posix } from 'node:path';

/**
 * Describes why a text is not a normalized absolute path; undefined when it is one. Paths must be
 * normalized so that two different texts never name the same path.
 */
export function findPathProblem(text: string): string | undefined {
  if (!text.startsWith('/')) return 'must be an absolute path';
  if (/\p{Cc}/u.test(text)) return 'must not contain control characters';
  const straight = posix.normalize(text).replace(/(?<=.)\/$/, '');
  return straight === text
    ? undefined
    : `must be written as "${straight}", without ".", ".." and needless slashes`;
}

/** True when a path is the directory itself or below it. */
export function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}
