import { Document } from 'yaml';

/**
 * Formats a JSON value as YAML 1.2. Strings that YAML 1.1 would read as another type (`on`, `0o7`,
 * `1:30`) are quoted too, because other tools may read the output as YAML 1.1.
 */
export function printYaml(value: unknown): string {
  return new Document(value, {
    version: '1.2',
    schema: 'core',
    aliasDuplicateObjects: false,
    compat: 'yaml-1.1',
  }).toString({
    lineWidth: 0,
  });
}
