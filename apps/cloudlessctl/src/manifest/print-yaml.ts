import { Document } from 'yaml';

/**
 * A JSON value as YAML 1.2. Texts that YAML 1.1 would read as something else (`on`, `0o7`, `1:30`)
 * are quoted too, because other tools will read what is printed here.
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
