import { ScalarType, toJson } from '@bufbuild/protobuf';
import type { DescField, DescMessage, JsonValue, MessageShape } from '@bufbuild/protobuf';
import {
  LoadBalancerConfigSchema,
  PolicySpecSchema,
  RouteSpecSchema,
  ServiceSpecSchema,
  WorkloadSpecSchema,
} from '@cloudless/api';
import { decodeText, type Values } from '../value-rules.js';
import type { ManifestConfig } from './manifest-config.js';
import { printYaml } from './print-yaml.js';
import { FILE_MODES, isFileMode } from './read-scalar.js';
import type { ManifestRoute } from './manifest-route.js';
import type { ManifestService } from './manifest-service.js';
import type { ManifestWorkload } from './parse-manifest.js';
import type { ManifestPolicy } from './parse-policies.js';
import type { ObjectId } from './read-body.js';

/**
 * Formats workloads as a manifest with one document each. A document has only the fields that the
 * spec sets, with quantities as users write them: `32Mi`, `500m`, `1h30m`. Parsing the manifest
 * returns the same specs.
 */
export function printManifests(workloads: readonly ManifestWorkload[]): string {
  return workloads
    .map(({ namespace, name, spec }) =>
      printYaml({
        kind: 'Workload',
        namespace,
        name,
        spec: toManifestMessage(WorkloadSpecSchema, toJson(WorkloadSpecSchema, spec)),
      }),
    )
    .join('---\n');
}

/** Formats services as a manifest with one document each, as {@link printManifests}. */
export function printServiceManifests(services: readonly ManifestService[]): string {
  return services
    .map(({ loadBalancer, ...service }) =>
      printYaml({
        ...toLabelledDocument('Service', ServiceSpecSchema, service),
        ...(loadBalancer === undefined
          ? {}
          : {
              loadBalancer: toManifestMessage(
                LoadBalancerConfigSchema,
                toJson(LoadBalancerConfigSchema, loadBalancer),
              ),
            }),
      }),
    )
    .join('---\n');
}

/** Formats routes as a manifest with one document each, as {@link printManifests}. */
export function printRouteManifests(routes: readonly ManifestRoute[]): string {
  return routes
    .map((route) => printYaml(toLabelledDocument('Route', RouteSpecSchema, route)))
    .join('---\n');
}

/** Returns the document of an object with labels beside its spec. */
function toLabelledDocument<Desc extends DescMessage>(
  kind: string,
  schema: Desc,
  {
    namespace,
    name,
    labels,
    spec,
  }: ObjectId & {
    readonly labels: Readonly<Record<string, string>>;
    readonly spec: MessageShape<Desc>;
  },
): Record<string, unknown> {
  return {
    ...{ kind, namespace, name },
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
    spec: toManifestMessage(schema, toJson(schema, spec)),
  };
}

/** Formats configs as a manifest with one document each, as {@link printManifests}. */
export function printConfigManifests(configs: readonly ManifestConfig[]): string {
  return configs
    .map(({ namespace, name, labels, immutable, data }) =>
      printYaml({
        ...{ kind: 'Config', namespace, name },
        ...(Object.keys(labels).length === 0 ? {} : { labels: { ...labels } }),
        ...(immutable ? { immutable } : {}),
        ...toConfigData(data),
      }),
    )
    .join('---\n');
}

/** Returns values as manifests have them: texts in `data`, other bytes as base64 in `binaryData`. */
export function toConfigData(values: Values): Record<string, Record<string, string>> {
  const data: Record<string, string> = {};
  const binaryData: Record<string, string> = {};
  for (const key of Object.keys(values).sort()) {
    const value = values[key] ?? new Uint8Array();
    const text = decodeText(value);
    if (text === undefined) binaryData[key] = Buffer.from(value).toString('base64');
    else data[key] = text;
  }
  return { data, ...(Object.keys(binaryData).length === 0 ? {} : { binaryData }) };
}

/** Formats policies as a manifest with one document each, as {@link printManifests}. */
export function printPolicyManifests(policies: readonly ManifestPolicy[]): string {
  return policies
    .map(({ name, spec }) =>
      printYaml({
        ...{ kind: 'Policy', name },
        spec: toManifestMessage(PolicySpecSchema, toJson(PolicySpecSchema, spec)),
      }),
    )
    .join('---\n');
}

/** Converts a message in protobuf JSON to the form of a manifest. */
function toManifestMessage(schema: DescMessage, json: JsonValue): JsonValue {
  if (schema.typeName === 'google.protobuf.Duration') return toDurationText(String(json));
  if (!isMap(json)) return json;
  return Object.fromEntries(
    Object.entries(json).map(([key, value]) => {
      const field = schema.fields.find(({ jsonName }) => jsonName === key);
      return [key, field === undefined ? value : toManifestField(field, value)];
    }),
  );
}

function toManifestField(field: DescField, value: JsonValue): JsonValue {
  const toElement = (element: JsonValue): JsonValue =>
    field.message === undefined
      ? toManifestScalar(field, element)
      : toManifestMessage(field.message, element);
  if (field.fieldKind === 'list')
    return Array.isArray(value) ? value.map((element) => toElement(element)) : value;
  if (field.fieldKind === 'map' && isMap(value))
    return Object.fromEntries(
      Object.entries(value).map(([key, element]) => [key, toElement(element)]),
    );
  return toElement(value);
}

/** The unit of a number follows from the end of the field name, as when a manifest is read. */
function toManifestScalar(field: DescField, value: JsonValue): JsonValue {
  if (field.scalar !== ScalarType.INT32 && field.scalar !== ScalarType.INT64) return value;
  const number = BigInt(String(value));
  if (isFileMode(field) && FILE_MODES.has(number)) return `0${number.toString(8)}`;
  if (field.name.endsWith('_bytes')) return toQuantityText(number, BINARY_UNITS);
  if (field.name.endsWith('_bps')) return toQuantityText(number, DECIMAL_UNITS);
  if (field.name.endsWith('cpu_millis') && number >= 0n) return `${number}m`;
  return toNumber(number);
}

/** Units of a quantity, the largest first. */
const BINARY_UNITS = [
  ['Pi', 1n << 50n],
  ['Ti', 1n << 40n],
  ['Gi', 1n << 30n],
  ['Mi', 1n << 20n],
  ['Ki', 1n << 10n],
] as const;
const DECIMAL_UNITS = [
  ['P', 10n ** 15n],
  ['T', 10n ** 12n],
  ['G', 10n ** 9n],
  ['M', 10n ** 6n],
  ['k', 10n ** 3n],
] as const;

/** Formats a quantity in the largest unit without a fraction; without such a unit as a number. */
function toQuantityText(
  value: bigint,
  units: readonly (readonly [string, bigint])[],
): string | number {
  const unit = units.find(([, size]) => value !== 0n && value % size === 0n);
  return unit === undefined ? toNumber(value) : `${value / unit[1]}${unit[0]}`;
}

/** Returns a number; a text when a number would lose digits. */
function toNumber(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}

/** Formats a duration of protobuf JSON (`5400s`, `0.500s`) with the units that users write. */
function toDurationText(json: string): string {
  const [, sign = '', whole = '0', fraction = ''] = /^(-?)(\d+)(?:\.(\d+))?s$/.exec(json) ?? [];
  const digits = fraction.replace(/0+$/, '');
  if (digits !== '')
    return whole === '0' && digits.length <= 3
      ? `${sign}${Number(digits.padEnd(3, '0'))}ms`
      : `${sign}${whole}.${digits}s`;
  const seconds = BigInt(whole);
  const parts = [
    [seconds / 3600n, 'h'],
    [(seconds % 3600n) / 60n, 'm'],
    [seconds % 60n, 's'],
  ] as const;
  const text = parts.map(([count, unit]) => (count === 0n ? '' : `${count}${unit}`)).join('');
  return text === '' ? '0s' : sign + text;
}

function isMap(value: JsonValue): value is Record<string, JsonValue> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
