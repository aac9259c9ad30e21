/**
 * The code of a failure of the operating system, such as `ENOENT`; undefined for other failures.
 */
export function errorCodeOf(reason: unknown): string | undefined {
  if (typeof reason !== 'object' || reason === null || !('code' in reason)) return undefined;
  return typeof reason.code === 'string' ? reason.code : undefined;
}
