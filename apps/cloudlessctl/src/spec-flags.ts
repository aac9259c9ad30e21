import { fromJson, toJson } from '@bufbuild/protobuf';
import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { Option } from 'commander';
import type { Command } from 'commander';
import { RestartPolicy_PolicySchema, Rollout_StrategySchema, WorkloadSpecSchema, WorkloadSpec_ModeSchema } from '@cloudless/api';
import type { WorkloadSpec } from '@cloudless/api';
import { usageFailure } from './failure.js';
import { durationJson } from './manifest/read-scalar.js';
import { parseCpu, parseDuration, parseQuantity } from './quantity.js';
import { didYouMean } from './suggest.js';

/** A flag that sets one field of a spec. */
interface SpecFlag {
  readonly flag: string;
  readonly value: string;
  readonly description: string;
  /** Below `spec`, as in an update mask. */
  readonly path: string;
  readonly repeatable?: boolean;
  /**
   * The field's value in protobuf's JSON form.
   * @param before - What it is now, for the flags that add to it.
   */
  parse(texts: readonly string[], before: JsonValue | undefined): JsonValue;
  /** The value adds to what is there. */
  readonly adds?: boolean;
}

const text = (texts: readonly string[]): JsonValue => texts.at(-1) ?? '';
const list = (texts: readonly string[]): JsonValue => [...texts];

function wholeNumber(flag: string): (texts: readonly string[]) => JsonValue {
  return (texts) => parseWholeNumber(flag, texts.at(-1) ?? '');
}

/** Reads a whole number that is not negative. */
export function parseWholeNumber(what: string, value: string): number {
  if (!/^\d{1,9}$/.test(value)) throw usageFailure(`${what}: expected a whole number, got ${JSON.stringify(value)}`);
  return Number(value);
}

function unit(flag: string, parse: typeof parseCpu, to: (value: bigint) => JsonValue): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const parsed = parse(texts.at(-1) ?? '');
    if ('problem' in parsed) throw usageFailure(`${flag}: ${parsed.problem}`);
    return to(parsed.value);
  };
}

function word(flag: string, names: readonly string[]): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const given = texts.at(-1) ?? '';
    const name = given.toUpperCase().replaceAll('-', '_');
    if (names.includes(name)) return name;
    throw usageFailure(`${flag}: expected one of ${names.join(', ')}, got ${JSON.stringify(given)}${didYouMean(given, names)}`);
  };
}

/** `key=value` sets, `key-` removes. */
function pairs(flag: string): (texts: readonly string[], before: JsonValue | undefined) => JsonValue {
  return (texts, before) => {
    const result = new Map(Object.entries((before ?? {}) as Record<string, JsonValue>));
    for (const pair of parsePairs(flag, texts)) {
      if (pair.value === undefined) result.delete(pair.key);
      else result.set(pair.key, pair.value);
    }
    return Object.fromEntries(result);
  };
}

/** Reads `key=value` and `key-`; the value may hold further equals signs. */
export function parsePairs(what: string, texts: readonly string[]): readonly { readonly key: string; readonly value?: string }[] {
  return texts.map((given) => {
    const at = given.indexOf('=');
    if (at > 0) return { key: given.slice(0, at), value: given.slice(at + 1) };
    if (at < 0 && given.length > 1 && given.endsWith('-')) return { key: given.slice(0, -1) };
    throw usageFailure(`${what}: expected key=value, or key- to remove it, got ${JSON.stringify(given)}`);
  });
}

function ports(texts: readonly string[]): JsonValue {
  return texts.map((given) => {
    const match = /^(?:([a-z0-9-]+)=)?(\d{1,5})(?:\/(tcp|udp))?$/i.exec(given);
    if (match === null) throw usageFailure(`--port: expected 8080, http=8080 or dns=53/udp, got ${JSON.stringify(given)}`);
    const [, name, number, protocol] = match;
    return {
      ...(name === undefined ? {} : { name }),
      containerPort: Number(number),
      ...(protocol === undefined ? {} : { protocol: protocol.toUpperCase() }),
    };
  });
}

/** `http:8080/healthz`, `tcp:8080`, `grpc:8080/service`, `exec:test -f /tmp/ok`. Times and thresholds need a manifest. */
function probe(flag: string): (texts: readonly string[]) => JsonValue {
  return (texts) => {
    const given = texts.at(-1) ?? '';
    const [, kind, port = '', path = ''] = /^(http|tcp|grpc):([^/\s]+)(\/\S*)?$/.exec(given) ?? [];
    const words =
      /^exec:(.*)$/s
        .exec(given)?.[1]
        ?.split(/\s+/)
        .filter((one) => one !== '') ?? [];
    if (words.length > 0) return { exec: { command: words } };
    if (kind === 'http') return { http: path === '' ? { port } : { port, path } };
    if (kind === 'grpc') return { grpc: path === '' ? { port } : { port, service: path.slice(1) } };
    if (kind === 'tcp' && path === '') return { tcp: { port } };
    throw usageFailure(
      `${flag}: expected http:8080/path, tcp:8080, grpc:8080/service or exec:command, got ${JSON.stringify(given)}`,
    );
  };
}

const duration = (flag: string): SpecFlag['parse'] => unit(flag, parseDuration, durationJson);
const names = (schema: { readonly values: readonly { readonly name: string }[] }): readonly string[] =>
  schema.values.map(({ name }) => name);

const PROBE_FLAGS = {
  liveness: 'check that restarts a replica',
  readiness: 'check that puts a replica into the endpoints',
  startup: 'check that holds the others back until it passes',
} as const;

const SPEC_FLAGS: readonly SpecFlag[] = [
  { flag: '--image', value: 'reference', description: 'image to run', path: 'image', parse: text },
  { flag: '--arg', value: 'text', description: 'argument after the command', path: 'args', repeatable: true, parse: list },
  { flag: '--replicas', value: 'number', description: 'how many copies', path: 'replicas', parse: wholeNumber('--replicas') },
  { flag: '--port', value: '[name=]number', description: 'port it listens on', path: 'ports', repeatable: true, parse: ports },
  {
    flag: '--env',
    value: 'key=value',
    description: 'environment variable',
    path: 'env',
    repeatable: true,
    adds: true,
    parse: pairs('--env'),
  },
  {
    flag: '--label',
    value: 'key=value',
    description: 'label',
    path: 'labels',
    repeatable: true,
    adds: true,
    parse: pairs('--label'),
  },
  {
    ...{ flag: '--annotation', value: 'key=value', description: 'annotation', path: 'annotations', repeatable: true, adds: true },
    parse: pairs('--annotation'),
  },
  {
    flag: '--cpu',
    value: 'cores',
    description: 'processor to reserve: 500m, 0.5',
    path: 'resources.requests.cpu_millis',
    parse: unit('--cpu', parseCpu, Number),
  },
  {
    flag: '--memory',
    value: 'bytes',
    description: 'memory to reserve: 64Mi',
    path: 'resources.requests.memory_bytes',
    parse: unit('--memory', parseQuantity, String),
  },
  {
    flag: '--cpu-limit',
    value: 'cores',
    description: 'processor never to exceed',
    path: 'resources.limits.cpu_millis',
    parse: unit('--cpu-limit', parseCpu, Number),
  },
  {
    ...{ flag: '--memory-limit', value: 'bytes', description: 'memory never to exceed', path: 'resources.limits.memory_bytes' },
    parse: unit('--memory-limit', parseQuantity, String),
  },
  {
    flag: '--region',
    value: 'region',
    description: 'region to run in',
    path: 'placement.regions',
    repeatable: true,
    parse: list,
  },
  { flag: '--zone', value: 'zone', description: 'zone to run in', path: 'placement.zones', repeatable: true, parse: list },
  {
    ...{
      flag: '--node-selector',
      value: 'key=value',
      description: 'label a node must have',
      path: 'placement.node_selector',
      repeatable: true,
      adds: true,
    },
    parse: pairs('--node-selector'),
  },
  { flag: '--priority', value: 'number', description: '0 to 1000', path: 'priority', parse: wholeNumber('--priority') },
  {
    ...{ flag: '--restart', value: 'policy', description: 'ALWAYS, ON_FAILURE or NEVER', path: 'restart.policy' },
    parse: word('--restart', names(RestartPolicy_PolicySchema)),
  },
  {
    flag: '--max-retries',
    value: 'number',
    description: 'restarts before it has failed',
    path: 'restart.max_retries',
    parse: wholeNumber('--max-retries'),
  },
  {
    flag: '--mode',
    value: 'mode',
    description: 'REPLICATED or GLOBAL',
    path: 'mode',
    parse: word('--mode', names(WorkloadSpec_ModeSchema)),
  },
  {
    ...{ flag: '--strategy', value: 'strategy', description: 'ROLLING_UPDATE, RECREATE or BLUE_GREEN', path: 'rollout.strategy' },
    parse: word('--strategy', names(Rollout_StrategySchema)),
  },
  {
    flag: '--max-surge',
    value: 'number',
    description: 'replicas beyond the wanted number',
    path: 'rollout.max_surge',
    parse: wholeNumber('--max-surge'),
  },
  {
    flag: '--max-unavailable',
    value: 'number',
    description: 'replicas stopped at a time',
    path: 'rollout.max_unavailable',
    parse: wholeNumber('--max-unavailable'),
  },
  {
    flag: '--min-available',
    value: 'number',
    description: 'ready replicas kept at every instant',
    path: 'rollout.min_available',
    parse: wholeNumber('--min-available'),
  },
  {
    flag: '--min-ready',
    value: 'duration',
    description: 'how long ready before it counts',
    path: 'rollout.min_ready_duration',
    parse: duration('--min-ready'),
  },
  {
    flag: '--grace-period',
    value: 'duration',
    description: 'between SIGTERM and SIGKILL',
    path: 'termination_grace_period',
    parse: duration('--grace-period'),
  },
  ...(['liveness', 'readiness', 'startup'] as const).map((name): SpecFlag => {
    const flag = `--${name}-probe`;
    const description = `${PROBE_FLAGS[name]}: http:PORT/PATH, tcp:PORT, grpc:PORT/SERVICE or exec:COMMAND`;
    return { flag, value: 'check', description, path: `${name}_probe`, parse: probe(flag) };
  }),
  { flag: '--runtime', value: 'runtime', description: 'process or cri', path: 'runtime', parse: text },
  { flag: '--working-dir', value: 'path', description: 'working directory', path: 'working_dir', parse: text },
];

/** Adds the flags that make up a spec. */
export function addSpecFlags(command: Command): void {
  for (const { flag, value, description, repeatable } of SPEC_FLAGS) {
    const option = new Option(`${flag} <${value}>`, repeatable ? `${description} (repeatable)` : description);
    option.argParser((given: string, before: readonly string[] | undefined) => [...(before ?? []), given]);
    command.addOption(option);
  }
}

/** What flags say: the fields they set, and the paths of these. */
export interface SpecChange {
  readonly spec: WorkloadSpec;
  /** For an update mask: exactly what was named on the command line. */
  readonly paths: readonly string[];
}

/** Whether the flags add to fields, so that the present spec must be known. */
export function needsPresentSpec(options: Readonly<Record<string, unknown>>): boolean {
  return SPEC_FLAGS.some((flag) => flag.adds === true && options[optionName(flag.flag)] !== undefined);
}

/**
 * Makes the part of a spec that flags and the command after `--` describe.
 * @param present - The workload's spec, for flags that add to a map.
 */
export function specFromFlags(
  options: Readonly<Record<string, unknown>>,
  command: readonly string[],
  present?: WorkloadSpec,
): SpecChange {
  const before = present === undefined ? {} : (toJson(WorkloadSpecSchema, present) as JsonObject);
  const json: JsonObject = {};
  const paths: string[] = [];
  if (command.length > 0) {
    json['command'] = [...command];
    paths.push('command');
  }
  for (const flag of SPEC_FLAGS) {
    const given = options[optionName(flag.flag)];
    if (!Array.isArray(given)) continue;
    const keys = flag.path.split('.').map(camelCase);
    place(
      json,
      keys,
      flag.parse(
        given.map(String),
        keys.reduce<JsonValue | undefined>((value, key) => childOf(value, key), before),
      ),
    );
    paths.push(flag.path);
  }
  return { spec: fromJson(WorkloadSpecSchema, json), paths };
}

function place(json: JsonObject, [key = '', ...rest]: readonly string[], value: JsonValue): void {
  if (rest.length === 0) {
    json[key] = value;
    return;
  }
  const child = (json[key] ?? {}) as JsonObject;
  json[key] = child;
  place(child, rest, value);
}

function childOf(value: JsonValue | undefined, key: string): JsonValue | undefined {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? value[key] : undefined;
}

function optionName(flag: string): string {
  return camelCase(flag.slice(2).replaceAll('-', '_'));
}

function camelCase(name: string): string {
  return name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
