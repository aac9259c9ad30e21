/**
 * Converts a name in camelCase to snake_case, as the fields of proto files are written: `hostPaths`
 * becomes `host_paths`.
 */
export function toSnakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
