import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import {
  CloudlessError,
  InvalidInputError,
  errorMessageOf,
  type ConfigLayer,
} from '@cloudless/base';

/**
 * The names of a program's settings on the command line and in the environment.
 */
export interface SettingNames {
  /** By key: the flag in the form of commander (`--data-dir <path>`), and its help text. */
  readonly flags: Readonly<Record<string, readonly [flag: string, help: string]>>;
  /** Prefix of environment variables: `--data-dir` is read from this prefix and `DATA_DIR`. */
  readonly envPrefix: string;
}

/** The method of a commander command by which {@link addSettingFlags} adds flags. */
export interface FlagTarget {
  option(flag: string, help: string): unknown;
}

/** Most YAML aliases in a file: settings need few, an attack (billion laughs) needs many. */
const MAX_ALIASES = 100;

/** Adds `--config` and a flag for each setting. */
export function addSettingFlags(command: FlagTarget, { flags }: SettingNames): void {
  command.option(
    '--config <file>',
    'settings as YAML or JSON: flags without dashes, such as dataDir; the environment and flags override them',
  );
  for (const [flag, help] of Object.values(flags)) command.option(flag, help);
}

/**
 * Returns the flag of a setting, such as `--data-dir` for `dataDir`; the key itself when there is
 * no such flag.
 */
export function getFlagName({ flags }: SettingNames, key: string): string {
  return flags[key]?.[0].split(' ')[0] ?? key;
}

/**
 * Returns the environment variable of a setting, such as `CLOUDLESS_AGENT_DATA_DIR` for `dataDir`.
 */
export function getEnvName(names: SettingNames, key: string): string {
  return (
    names.envPrefix + getFlagName(names, key).slice('--'.length).replaceAll('-', '_').toUpperCase()
  );
}

/**
 * Reads the settings of a program from file, environment and command line. Later layers win.
 * @param options - The result of commander's `opts()`; `config` is the path of the file. Without
 *   it, the variable `<prefix>CONFIG` is.
 * @param env - Environment variables. A variable with the program's prefix that matches no setting
 *   stays in the layer under its own name, so that `parseConfig` reports it as unknown.
 * @throws kind `invalid` when the file cannot be read, is not a map, or sets a setting twice.
 */
export async function readSettingLayers(
  names: SettingNames,
  options: Readonly<Record<string, unknown>>,
  env: Readonly<Record<string, string | undefined>>,
): Promise<readonly ConfigLayer[]> {
  const { config, ...flags } = options;
  const keyOfOption = getKeysByOption(names);
  const fromFlags = Object.fromEntries(
    Object.entries(flags).map(([name, value]) => [keyOfOption.get(name) ?? name, value]),
  );
  const configVariable = `${names.envPrefix}CONFIG`;
  const path = typeof config === 'string' ? config : env[configVariable];
  const keyOfVariable = new Map(
    Object.keys(names.flags).map((key) => [getEnvName(names, key), key]),
  );
  const programVariables = Object.entries(env).filter(
    ([name]) => name.startsWith(names.envPrefix) && name !== configVariable,
  );
  const fromEnv = Object.fromEntries(
    programVariables.map(([name, value]) => [keyOfVariable.get(name) ?? name, value]),
  );
  return [
    ...(path === undefined ? [] : [await readFileLayer(names, path)]),
    {
      source: 'environment',
      values: fromEnv,
      nameOf: (key) => (Object.hasOwn(names.flags, key) ? getEnvName(names, key) : key),
    },
    { source: 'command line', values: fromFlags, nameOf: (key) => getFlagName(names, key) },
  ];
}

/** Returns the name of a setting in commander's `opts()`: `dataDir` for `--data-dir`. */
function getOptionName(names: SettingNames, key: string): string {
  return toCamelCase(getFlagName(names, key).slice('--'.length));
}

/** Converts `data-dir` to `dataDir`, as commander does for its options. */
function toCamelCase(name: string): string {
  return name.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}

/** Returns the key of each setting by its name in commander's `opts()`. */
function getKeysByOption(names: SettingNames): ReadonlyMap<string, string> {
  return new Map(Object.keys(names.flags).map((key) => [getOptionName(names, key), key]));
}

/**
 * Reads the settings of a file. A file names a setting like its flag, `dataDir` or `data-dir`; the
 * key of the setting is accepted, too.
 * @throws kind `invalid` when the file cannot be read, is not a map, or sets a setting twice.
 */
async function readFileLayer(names: SettingNames, path: string): Promise<ConfigLayer> {
  const keyOfOption = getKeysByOption(names);
  const nameByKey = new Map<string, string>();
  const values: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(await readSettings(path))) {
    const key = keyOfOption.get(toCamelCase(name)) ?? name;
    const otherName = nameByKey.get(key);
    if (otherName !== undefined) {
      const message = `is the same setting as ${otherName}; remove one of them`;
      throw new InvalidInputError([{ field: `${path}: ${name}`, message }]);
    }
    nameByKey.set(key, name);
    Object.defineProperty(values, key, { value, enumerable: true });
  }
  const nameOf = (key: string): string =>
    nameByKey.get(key) ?? (Object.hasOwn(names.flags, key) ? getOptionName(names, key) : key);
  return { source: path, values, nameOf };
}

/** Reads the file of settings; an empty file has no settings. */
async function readSettings(path: string): Promise<Record<string, unknown>> {
  let settings: unknown;
  try {
    settings = parse(await readFile(path, 'utf8'), {
      strict: true,
      uniqueKeys: true,
      maxAliasCount: MAX_ALIASES,
    });
  } catch (reason) {
    throw new CloudlessError(
      'invalid',
      `cannot read the settings at ${path}: ${errorMessageOf(reason)}`,
      { cause: reason },
    );
  }
  if (settings === null) return {};
  if (typeof settings !== 'object' || Array.isArray(settings)) {
    throw new CloudlessError('invalid', `${path}: must be a map of settings`);
  }
  return settings as Record<string, unknown>;
}
