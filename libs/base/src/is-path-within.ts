/**
 * Returns true when an absolute path is `directory` or below `directory`. Compares the texts, so both
 * must be normalized: without `.`, `..`, repeated slashes and a slash at the end.
 */
export function isPathWithin(path: string, directory: string): boolean {
  return directory === '/' || path === directory || path.startsWith(`${directory}/`);
}
