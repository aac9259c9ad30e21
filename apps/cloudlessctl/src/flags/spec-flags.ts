import { fromJson, toJson } from '@bufbuild/protobuf';
import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { Option } from 'commander';
import type { Command } from 'commander';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { WorkloadSpec } from '@cloudless/api';
import { withValues } from '../completion/value-kinds.js';
import { CONTAINER_FLAGS, CONTAINER_SWITCHES } from './container-flags.js';
import { FILE_FLAGS } from './file-flags.js';
import { collectValue } from './flag-values.js';
import type { SpecFlag } from './flag-values.js';
import { FLAG_DEFAULTS, FLAG_HEADINGS, getFlagHeading } from './flag-help.js';
import { ROLLOUT_FLAGS } from './rollout-flags.js';
import { TEMPLATE_FLAGS } from './template-flags.js';

export { parsePairs, parseWholeNumber } from './flag-values.js';

/** The flags of a workload spec, except switches. */
export const SPEC_FLAGS: readonly SpecFlag[] = [
  ...TEMPLATE_FLAGS,
  ...CONTAINER_FLAGS,
  ...FILE_FLAGS,
  ...ROLLOUT_FLAGS,
];

/**
 * Adds the flags of a workload spec to a command, grouped for the help. Every flag may be given
 * several times.
 * @param hasDefaults - True for a command that creates a workload: the help shows the defaults.
 */
export function addSpecFlags(command: Command, hasDefaults: boolean): void {
  for (const heading of FLAG_HEADINGS) {
    for (const option of createOptions(hasDefaults)) {
      if (option.helpGroupHeading === heading) command.addOption(option);
    }
  }
}

function createOptions(hasDefaults: boolean): readonly Option[] {
  const flags = SPEC_FLAGS.map(({ flag, value, values, description, repeatable, path }) => {
    const text = repeatable === true ? `${description} (repeatable)` : description;
    const option = new Option(`${flag} <${value}>`, text).helpGroup(getFlagHeading(path));
    const shown = hasDefaults ? FLAG_DEFAULTS[flag] : undefined;
    if (shown !== undefined) option.defaultValueDescription = shown;
    return (values === undefined ? option : withValues(option, values)).argParser(collectValue);
  });
  const envFile = new Option(
    '--env-file <file>',
    'file of NAME=VALUE lines; --env takes precedence (repeatable)',
  );
  const switches = CONTAINER_SWITCHES.flatMap(({ flag, description, path }) => [
    new Option(flag, description).helpGroup(getFlagHeading(path)),
    new Option(flag.replace('--', '--no-'), `not ${flag}`)
      .helpGroup(getFlagHeading(path))
      .hideHelp(),
  ]);
  return [...flags, envFile.argParser(collectValue).helpGroup(getFlagHeading('env')), ...switches];
}

/** The fields of a spec that were set by flags, with their update mask. */
export interface SpecPatch {
  readonly spec: WorkloadSpec;
  /** Paths for the update mask: exactly the fields named on the command line. */
  readonly paths: readonly string[];
}

/**
 * Returns true when one of the options adds to a map, so that {@link createSpecPatch} needs the
 * current spec.
 * @param options - The options of the command by camelCase name.
 */
export function needsCurrentSpec(options: Readonly<Record<string, unknown>>): boolean {
  return SPEC_FLAGS.some(
    (flag) => flag.addsToCurrent === true && options[toOptionName(flag.flag)] !== undefined,
  );
}

/**
 * Builds the part of a spec that the flags and the command after `--` set. Call {@link
 * withEnvFiles} first.
 * @param options - The options of the command by camelCase name.
 * @param command - The words after `--`; empty leaves the command unchanged.
 * @param current - The current spec, for flags that add to a map. Default: an empty spec.
 * @throws {@link CliFailure} with exit code 2 for an invalid value.
 */
export function createSpecPatch(
  options: Readonly<Record<string, unknown>>,
  command: readonly string[],
  current?: WorkloadSpec,
): SpecPatch {
  const currentJson =
    current === undefined ? {} : (toJson(WorkloadSpecSchema, current) as JsonObject);
  const json: JsonObject = {};
  const paths: string[] = [];
  if (command.length > 0) {
    json['command'] = [...command];
    paths.push('command');
  }
  for (const flag of SPEC_FLAGS) {
    const values = options[toOptionName(flag.flag)];
    if (!Array.isArray(values)) continue;
    const texts = values.map(String);
    const { path, alternative } = flag;
    const isAlternative = alternative?.matches(texts) === true;
    const keys = (isAlternative ? alternative.path : path).split('.').map(toCamelCase);
    setField(
      json,
      keys,
      flag.parse(
        texts,
        keys.reduce<JsonValue | undefined>((value, key) => getChild(value, key), currentJson),
      ),
    );
    paths.push(path, ...(alternative === undefined ? [] : [alternative.path]));
  }
  for (const { flag, path, isMessage = false } of CONTAINER_SWITCHES) {
    const value = options[toOptionName(flag)];
    if (typeof value !== 'boolean') continue;
    const keys = path.split('.').map(toCamelCase);
    if (!isMessage) setField(json, keys, value);
    else if (value) setField(json, keys, {});
    paths.push(path);
  }
  return { spec: fromJson(WorkloadSpecSchema, json), paths };
}

/** Sets a field below `json` and creates the objects above the field. */
function setField(
  json: JsonObject,
  [key = '', ...rest]: readonly string[],
  value: JsonValue,
): void {
  if (rest.length === 0) {
    json[key] = value;
    return;
  }
  const child = (json[key] ?? {}) as JsonObject;
  json[key] = child;
  setField(child, rest, value);
}

function getChild(value: JsonValue | undefined, key: string): JsonValue | undefined {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
    ? value[key]
    : undefined;
}

/** Returns the name that commander gives an option: `maxSurge` for `--max-surge`. */
function toOptionName(flag: string): string {
  return toCamelCase(flag.slice(2).replaceAll('-', '_'));
}

function toCamelCase(name: string): string {
  return name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
