import { manifestSchema } from '@cloudless/api/manifest-schema';
import type { JsonSchema } from '@cloudless/api/manifest-schema';
import { toSnakeCase } from '@cloudless/base';
import { suggestKnown } from '../suggest.js';

/** A field of a manifest. */
export interface ManifestField {
  /** Path such as `spec.rollout.steps`; empty for the whole manifest. */
  readonly path: string;
  /** Type in words, for example `list of maps, at most 32`. */
  readonly type: string;
  /** Markdown in one paragraph. */
  readonly description: string;
  /** The values of an enum with their descriptions. */
  readonly values: readonly { readonly name: string; readonly description: string }[];
  /** The fields of the map, or of each item of the list. */
  readonly fields: readonly ManifestField[];
}

/**
 * Finds a field of a manifest.
 * @param path - Names joined by dots: `spec.rollout.steps`. List positions such as `steps[0]` and
 *   names in snake_case are accepted. Empty: the whole manifest.
 * @returns The field, or the problem of the path as a message.
 */
export function findField(path: string): ManifestField | { readonly problem: string } {
  let schema = getDefinition('Workload');
  const found: string[] = [];
  for (const word of path === '' ? [] : path.split('.')) {
    const name = word.replace(/\[\d*\]$/, '');
    const properties = getProperties(schema);
    const names = Object.keys(properties);
    const known = names.find((candidate) => candidate === name || toSnakeCase(candidate) === name);
    if (known === undefined) {
      const parent = found.length === 0 ? 'a manifest' : found.join('.');
      return {
        problem:
          names.length === 0
            ? `${parent} has no fields of its own`
            : `${parent} has no field ${JSON.stringify(name)}${suggestKnown(name, names, `"cloudlessctl explain ${found.join('.')}" lists the fields`)}`,
      };
    }
    found.push(known);
    schema = properties[known] ?? {};
  }
  return toField(found.join('.'), schema);
}

/** Returns the names of all fields below a path; empty when there is no such path. */
export function listFields(path: string): readonly string[] {
  const field = findField(path);
  return 'problem' in field ? [] : field.fields.map(({ path: inner }) => inner);
}

/** Describes a schema that is the value of the field `path`. */
function toField(path: string, schema: JsonSchema): ManifestField {
  const target = resolve(schema);
  const element = target.items === undefined ? undefined : resolve(target.items);
  const enumeration = target.enum === undefined ? element : target;
  // The description of a message repeats that of its field in other words; it adds the rules.
  const texts = new Set([schema.description, target.description, element?.description]);
  return {
    path,
    type: describeType(target),
    description: [...texts].filter((text) => text !== undefined).join(' '),
    values: (enumeration?.enum ?? []).map((name, index) => ({
      name,
      description: enumeration?.enumDescriptions?.[index] ?? '',
    })),
    fields: Object.entries(getProperties(target)).map(([name, property]) =>
      toField(path === '' ? name : `${path}.${name}`, property),
    ),
  };
}

function describeType(schema: JsonSchema): string {
  if (schema.items !== undefined)
    return `list of ${pluralOf(resolve(schema.items))}${limitText(schema.maxItems)}`;
  if (schema.enum !== undefined) return 'one of';
  if (schema.const !== undefined) return `the text ${schema.const}`;
  if (schema.type === 'object') {
    if (schema.properties !== undefined) return 'map';
    return `map of names to ${pluralOf(resolve(schema.additionalProperties || {}))}${limitText(schema.maxProperties)}`;
  }
  return `${singularOf(schema)}${rangeText(schema)}`;
}

function singularOf(schema: JsonSchema): string {
  switch (schema['x-unit']) {
    case 'duration':
      return 'duration such as 500ms, 2s or 1h30m';
    case 'cpu':
      return 'CPU such as 500m or 0.5';
    case 'bytes':
      return 'size such as 64Mi or 1G';
    case 'mode':
      return 'permissions such as 0400';
    case undefined:
      break;
  }
  if (schema.type === 'boolean') return 'true or false';
  if (schema.format === 'date-time') return 'time such as 2026-01-31T12:00:00Z';
  return schema.type === 'string' ? 'text' : 'whole number'; // `type` of a 64-bit number is a list
}

function pluralOf(schema: JsonSchema): string {
  if (schema.enum !== undefined) return 'names';
  if (schema.type === 'object') return 'maps';
  return schema.type === 'string' ? 'texts' : 'whole numbers';
}

function limitText(limit: number | undefined): string {
  return limit === undefined ? '' : `, at most ${limit}`;
}

/** Only the range of a plain number, because a quantity is not written as the number is stored. */
function rangeText({ minimum, maximum, ...schema }: JsonSchema): string {
  if (schema['x-unit'] !== undefined) return '';
  if (minimum !== undefined && maximum !== undefined) return `, ${minimum} to ${maximum}`;
  if (minimum !== undefined) return `, at least ${minimum}`;
  return maximum === undefined ? '' : `, at most ${maximum}`;
}

/** The properties of a map, or of the items of a list of maps. */
function getProperties(schema: JsonSchema): Readonly<Record<string, JsonSchema>> {
  const target = resolve(schema);
  return (target.items === undefined ? target : resolve(target.items)).properties ?? {};
}

/** Follows a `$ref`. */
function resolve(schema: JsonSchema): JsonSchema {
  return schema.$ref === undefined
    ? schema
    : getDefinition(schema.$ref.slice('#/definitions/'.length));
}

function getDefinition(name: string): JsonSchema {
  return manifestSchema.definitions[name] ?? {};
}
