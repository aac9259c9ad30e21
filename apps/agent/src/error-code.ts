/** Returns the code of an operating system error, such as `ENOENT`; undefined for other errors. */
export function errorCodeOf(reason: unknown): string | undefined {
  if (typeof reason !== 'object' || reason === null || !('code' in reason)) return undefined;
  return typeof reason.code === 'string' ? reason.code : undefined;
}
