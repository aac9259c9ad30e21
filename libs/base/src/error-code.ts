/**
 * Returns the code of an error of the operating system or of Node.js, such as `ENOENT`; undefined
 * for any other thrown value.
 */
export function errorCodeOf(reason: unknown): string | undefined {
  if (typeof reason !== 'object' || reason === null || !('code' in reason)) return undefined;
  return typeof reason.code === 'string' ? reason.code : undefined;
}
