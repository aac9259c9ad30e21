/** Returns the `code` of a Node error, such as `ENOENT`; undefined when there is none. */
export function getErrorCode(reason: unknown): unknown {
  return typeof reason === 'object' && reason !== null
    ? (reason as { readonly code?: unknown }).code
    : undefined;
}
