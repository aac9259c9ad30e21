#!/usr/bin/env node
// A protoc plugin: writes the JSON Schema (draft 7) of a manifest (workloads, services, routes,
// configs), with the comments of the proto files as descriptions and the rules of buf.validate as
// constraints. Editors read the schema, and so does `cloudlessctl explain`. Called by
// `buf generate`, see buf.gen.yaml.
import { ScalarType, getOption, hasOption } from '@bufbuild/protobuf';
import { createEcmaScriptPlugin, getComments, runNodeJs } from '@bufbuild/protoplugin';
import { field as fieldRules } from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js';

/** The messages that give the fields of each kind: of the spec, or of the request that creates. */
const MESSAGES = {
  workload: 'cloudless.api.WorkloadSpec',
  service: 'cloudless.api.CreateServiceRequest',
  route: 'cloudless.api.CreateRouteRequest',
  config: 'cloudless.api.CreateConfigRequest',
};
const DNS_LABEL = '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$';

// The texts that `parseDuration`, `parseQuantity` and `parseCpu` of cloudlessctl accept. The
// annotation `x-unit` names the kind of text for `cloudlessctl explain`.
const DURATION = '^(\\d+(\\.\\d{1,9})?(d|h|ms|m|s|us|ns))+$';
const QUANTITY = '^\\d+(\\.\\d+)?([kKMGTP]?|[KMGTP]i)$';
const BASE64 = '^[A-Za-z0-9+/\\s]*={0,2}\\s*$';
const CPU = '^(\\d+(\\.\\d+)?m|\\d+\\.\\d+)$';

// Permissions of files, which manifests write in octal.
const FILE_MODES = ['SecretRef.mode', 'ConfigRef.mode'];

const LONG_TYPES = [ScalarType.INT64, ScalarType.UINT64, ScalarType.SINT64];

/** Returns the manifest schema of the messages of {@link MESSAGES}, and of those they contain. */
export function createManifestSchema({ workload, service, route, config }) {
  const pending = [workload];
  const label = { type: 'string', pattern: DNS_LABEL, maxLength: 63 };
  const kinds = {
    Workload: createKindSchema('Workload', {
      name: label,
      fields: { spec: refTo(workload, 'The declared state of the workload. Required.') },
      required: ['spec'],
    }),
    Service: createKindSchema('Service', {
      name: label,
      fields: toProperties(service, ['spec', 'labels', 'loadBalancer'], pending),
      required: ['kind', 'spec'],
    }),
    Route: createKindSchema('Route', {
      name: label,
      fields: toProperties(route, ['spec', 'labels'], pending),
      required: ['kind', 'spec'],
    }),
    Config: {
      ...createKindSchema('Config', {
        name: toFieldSchema(fieldOf(config, 'name'), pending),
        fields: {
          ...toValueProperties(fieldOf(config, 'data')),
          ...toProperties(config, ['labels', 'immutable'], pending),
        },
        required: ['kind'],
      }),
      anyOf: [{ required: ['data'] }, { required: ['binaryData'] }],
    },
  };
  const definitions = {};
  for (let message = pending.shift(); message !== undefined; message = pending.shift()) {
    if (nameOf(message) in definitions) continue;
    definitions[nameOf(message)] = toObjectSchema(message, pending);
  }
  const kindRefs = Object.keys(kinds).map((kind) => ({ $ref: `#/definitions/${kind}` }));
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Cloudless manifest',
    description: 'A workload, service, route or config, or a list of them.',
    anyOf: [...kindRefs, { type: 'array', items: { anyOf: kindRefs } }],
    definitions: { ...kinds, ...definitions },
  };
}

/**
 * Returns the schema of a document of a kind.
 * @param parts - `name`: schema of the name. `fields`: schemas of the fields beside kind, namespace
 *   and name. `required`: the fields that are required beside the name.
 */
function createKindSchema(kind, { name, fields, required }) {
  const noun = kind.toLowerCase();
  return {
    description: `A ${noun} as \`cloudlessctl apply\` reads it from a file.`,
    type: 'object',
    properties: {
      kind: {
        description: `Kind of the object. ${kind === 'Workload' ? 'Default: Workload.' : 'Required.'}`,
        const: kind,
      },
      namespace: {
        description: `Namespace of the ${noun}. Default: the namespace of the command line.`,
        ...{ type: 'string', pattern: DNS_LABEL, maxLength: 63 },
      },
      name: { description: `Name of the ${noun}, unique in its namespace. Required.`, ...name },
      ...fields,
    },
    patternProperties: { '^x-': { description: 'Ignored: a place for YAML anchors.' } },
    additionalProperties: false,
    required: ['name', ...required],
  };
}

/** Returns the schemas of the named fields of a message, with the messages that they refer to. */
function toProperties(message, names, pending) {
  return Object.fromEntries(
    names.map((name) => {
      const field = fieldOf(message, name);
      return [name, { ...describe(field), ...toFieldSchema(field, pending) }];
    }),
  );
}

/** Manifests have values as texts in `data`, and other bytes as base64 texts in `binaryData`. */
function toValueProperties(field) {
  const { keys, maxPairs } = getOption(field, fieldRules).type.value;
  const values = {
    type: 'object',
    propertyNames: toStringSchema(keys),
    ...limits({ maxProperties: maxPairs }),
  };
  return {
    data: { ...describe(field), ...values, additionalProperties: { type: 'string' } },
    binaryData: {
      description: 'Values that are no texts, in base64. No key is also a key of `data`.',
      ...values,
      additionalProperties: { type: 'string', pattern: BASE64 },
    },
  };
}

function fieldOf(message, name) {
  const field = message.fields.find(({ jsonName }) => jsonName === name);
  if (field === undefined) throw new Error(`${message.typeName} has no field ${name}`);
  return field;
}

/** Adds the messages that the fields refer to to `pending`. */
function toObjectSchema(message, pending) {
  const properties = {};
  const required = [];
  for (const field of message.fields) {
    properties[field.jsonName] = { ...describe(field), ...toFieldSchema(field, pending) };
    if (hasOption(field, fieldRules) && getOption(field, fieldRules).required)
      required.push(field.jsonName);
  }
  // Draft 7 ignores what stands beside a $ref, but editors show its description.
  return {
    ...describe(message),
    type: 'object',
    properties,
    additionalProperties: false,
    ...(required.length > 0 ? { required } : {}),
    ...excludeOneofSiblings(message),
  };
}

/** At most one field of each oneof may be present. */
function excludeOneofSiblings(message) {
  const pairs = message.oneofs.flatMap(({ fields }) =>
    fields.flatMap((first, index) =>
      fields
        .slice(index + 1)
        .map((second) => ({ not: { required: [first.jsonName, second.jsonName] } })),
    ),
  );
  return pairs.length > 0 ? { allOf: pairs } : {};
}

function toFieldSchema(field, pending) {
  const rules = hasOption(field, fieldRules) ? getOption(field, fieldRules) : undefined;
  switch (field.fieldKind) {
    case 'list': {
      const list = rules?.type.case === 'repeated' ? rules.type.value : undefined;
      return {
        type: 'array',
        items: toElementSchema(field, field.listKind, list?.items, pending),
        ...limits({ minItems: list?.minItems, maxItems: list?.maxItems }),
        ...(list?.unique ? { uniqueItems: true } : {}),
      };
    }
    case 'map': {
      const map = rules?.type.case === 'map' ? rules.type.value : undefined;
      return {
        type: 'object',
        ...(map?.keys === undefined ? {} : { propertyNames: toStringSchema(map.keys) }),
        additionalProperties: toElementSchema(field, field.mapKind, map?.values, pending),
        ...limits({ minProperties: map?.minPairs, maxProperties: map?.maxPairs }),
      };
    }
    default:
      return toElementSchema(field, field.fieldKind, rules, pending);
  }
}

function toElementSchema(field, kind, rules, pending) {
  if (kind === 'enum') return toEnumSchema(field.enum);
  if (kind === 'message') {
    if (field.message.typeName === 'google.protobuf.Duration')
      return { type: 'string', pattern: DURATION, 'x-unit': 'duration' };
    if (field.message.typeName === 'google.protobuf.Timestamp')
      return { type: 'string', format: 'date-time' };
    pending.push(field.message);
    return { $ref: `#/definitions/${nameOf(field.message)}` };
  }
  switch (field.scalar) {
    case ScalarType.STRING:
      return { type: 'string', ...toStringSchema(rules) };
    case ScalarType.BOOL:
      return { type: 'boolean' };
    default:
      return toNumberSchema(field, rules);
  }
}

function toEnumSchema(schema) {
  return {
    enum: schema.values.map(({ name }) => name),
    // Known to the YAML language server and VS Code.
    enumDescriptions: schema.values.map((value) => commentOf(value)),
  };
}

/**
 * A limit in bytes becomes `maxLength`, which counts characters: the schema accepts a few texts
 * with other than ASCII characters that the API refuses.
 */
function toStringSchema(rules) {
  const text = rules?.type.case === 'string' ? rules.type.value : undefined;
  if (text === undefined) return {};
  return {
    ...limits({ minLength: text.minLen, maxLength: text.maxLen || text.maxBytes }),
    ...(text.pattern ? { pattern: text.pattern } : {}),
  };
}

function toNumberSchema(field, rules) {
  const number = rules?.type.value;
  const range = limits({
    minimum: valueOf(number?.greaterThan, 'gte'),
    maximum: valueOf(number?.lessThan, 'lte'),
  });
  if (field.name.endsWith('cpu_millis'))
    return { type: ['number', 'string'], pattern: CPU, 'x-unit': 'cpu', ...range };
  if (/_bytes$|_bps$/.test(field.name))
    return { type: ['integer', 'string'], pattern: QUANTITY, 'x-unit': 'bytes', ...range };
  if (FILE_MODES.includes(`${field.parent.name}.${field.name}`))
    return { type: ['integer', 'string'], pattern: '^0(400|440|444)$', 'x-unit': 'mode' };
  // The JSON form of protobuf writes 64-bit numbers as texts.
  if (LONG_TYPES.includes(field.scalar))
    return { type: ['integer', 'string'], pattern: '^-?\\d+$', ...range };
  return { type: 'integer', ...range };
}

function valueOf(bound, name) {
  return bound?.case === name ? bound.value : undefined;
}

/** Returns the limits that are set, as numbers. A rule that is not set is 0, except for ranges. */
function limits(values) {
  return Object.fromEntries(
    Object.entries(values)
      .filter(([name, value]) => value !== undefined && (name === 'minimum' || value !== 0n))
      .map(([name, value]) => [name, Number(value)]),
  );
}

function refTo(message, description) {
  return { description, $ref: `#/definitions/${nameOf(message)}` };
}

/** Name of a definition: `WorkloadSpec`, `Rollout.Step`. */
function nameOf(message) {
  return message.typeName.replace('cloudless.api.', '');
}

function describe(desc) {
  const description = commentOf(desc);
  return description === '' ? {} : { description };
}

/** Returns the comment above a declaration with single spaces, fields in camelCase. */
function commentOf(desc) {
  const text = (getComments(desc).leading ?? '').trim().replaceAll(/\s+/g, ' ');
  return text.replaceAll(/`([a-z]+(?:_[a-z]+)+)`/g, (_, name) => `\`${toCamelCase(name)}\``);
}

function toCamelCase(name) {
  return name.replaceAll(/_([a-z])/g, (_, letter) => letter.toUpperCase());
}

export const plugin = createEcmaScriptPlugin({
  name: 'protoc-gen-manifest-schema',
  version: 'v1',
  generateTs(schema) {
    const messages = schema.files.flatMap((file) => file.messages);
    const found = Object.fromEntries(
      Object.entries(MESSAGES).map(([kind, typeName]) => [
        kind,
        messages.find((message) => message.typeName === typeName),
      ]),
    );
    if (Object.values(found).includes(undefined)) return;
    // TypeScript rather than JSON, which bundlers and Jest import without settings.
    const file = schema.generateFile('manifest_schema.ts');
    file.preamble(found.workload.file);
    file.print("import type { RootSchema } from '../json-schema.js';");
    file.print();
    file.print('/**');
    file.print(
      ' * JSON Schema (draft 7) of a manifest, the input of `cloudlessctl apply`: field names in',
    );
    file.print(
      ' * camelCase, quantities with units, the comments of the API as descriptions. Rules that',
    );
    file.print(
      ' * involve several fields, such as "IN needs a value", are checked by the coordinator only.',
    );
    file.print(' */');
    file.print(
      'export const manifestSchema: RootSchema = ',
      JSON.stringify(createManifestSchema(found), undefined, 1),
      ';',
    );
  },
});

runNodeJs(plugin);
