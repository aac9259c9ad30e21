/** The `code` of an error of Node, such as `ENOENT`; undefined when there is none. */
export function errorCodeOf(reason: unknown): unknown {
  return typeof reason === 'object' && reason !== null
    ? (reason as { readonly code?: unknown }).code
    : undefined;
}
