import { posix } from 'node:path';

/**
 * Describes why a text is not a normalized absolute path; undefined when the text is such a path.
 * Paths must be normalized so that two different texts never name the same path.
 */
export function findPathProblem(text: string): string | undefined {
  if (!text.startsWith('/')) return 'must be an absolute path';
  if (/\p{Cc}/u.test(text)) return 'must not contain control characters';
  const normalized = posix.normalize(text).replace(/(?<=.)\/$/, '');
  return normalized === text
    ? undefined
    : `must be written as "${normalized}", without ".", ".." and needless slashes`;
}
