import type { JsonValue } from '@bufbuild/protobuf';
import { ConfigSchema, type Config } from '@cloudless/api';
import { toKindJson } from '../../call/cli-session.js';
import { createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import { printConfigManifests, toConfigData } from '../../manifest/print-manifest.js';
import { parseObjectName } from '../../object-name.js';
import { formatConfigDescription, formatConfigTable } from '../../views/value-view.js';
import {
  describeEmptyList,
  printObjects,
  readListFilter,
  type ObjectKind,
} from '../general/list-objects.js';
import { getTextOption, hasFlag, requireOperand } from '../options.js';
import { listAllPages } from '../page.js';
import { printKey, writeValues } from '../values/print-values.js';
import { readVersion } from '../values/read-version.js';
import { findUses } from '../values/workload-uses.js';
import { findConfig } from './find-config.js';

/** Names, fields and columns of configs in lists. */
export const CONFIG_KIND: ObjectKind<Config> = {
  plural: 'configs',
  fields: ConfigSchema.fields.map(({ jsonName }) => jsonName),
  toJson: toConfigJson,
  formatTable: (configs, { nowMs, style, settings }) =>
    formatConfigTable(configs, nowMs, style, settings.output === 'wide'),
  formatManifests: (configs) => printConfigManifests(configs),
};

/** Returns a config in the form of `-o json`, which `apply` accepts: values are texts, or base64. */
export function toConfigJson(config: Config): JsonValue {
  return { ...toKindJson('Config', ConfigSchema, config), ...toConfigData(config.data) };
}

/** Lists the configs of a namespace, or of all namespaces with `--all-namespaces`. */
export async function listConfigs(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const filter = readListFilter(invocation);
  const namePrefix = getTextOption(invocation, 'prefix') ?? '';
  const listed = await listAllPages(
    (page) =>
      session.configs.listConfigs({ ...filter, namePrefix, ...page }, session.getCallOptions()),
    (page) => page.configs,
  );
  const empty = describeEmptyList(CONFIG_KIND.plural, filter.namespace);
  const hint = `${empty}; create one with: cloudlessctl config create NAME --from-file KEY=PATH`;
  // A list has no values, which a manifest needs.
  const configs: Config[] = [];
  for (const config of listed)
    configs.push(
      session.settings.output === 'manifest' ? await findConfig(session, config) : config,
    );
  await printObjects(invocation, CONFIG_KIND, configs, hint);
}

/**
 * Shows configs by name. With `--key`, writes the value of a key, byte for byte; with `--out-dir`,
 * writes each value to a file.
 */
export async function getConfigs(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const names = operands.map((text) => parseObjectName(text, session.settings.namespace, 'config'));
  const key = getTextOption(invocation, 'key');
  const outDir = getTextOption(invocation, 'outDir');
  if ((key ?? outDir) !== undefined && names.length !== 1)
    throw createUsageFailure(`${key === undefined ? '--out-dir' : '--key'} takes one config`);
  const version = readVersion(invocation);
  const configs: Config[] = [];
  for (const name of names) configs.push(await findConfig(session, name, version));
  const [config] = configs;
  if (config !== undefined && key !== undefined) return printKey(session, config.data, key);
  if (config !== undefined && outDir !== undefined)
    return writeValues(session, config.data, outDir, { replaces: hasFlag(invocation, 'force') });
  await printObjects(invocation, CONFIG_KIND, configs, 'no configs', {
    single: operands.length === 1,
  });
}

/** Shows a config with its values, its versions and the workloads that use it. */
export async function describeConfig(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name of the config');
  const name = parseObjectName(text, session.settings.namespace, 'config');
  const config = await findConfig(session, name, readVersion(invocation));
  if (session.isStructured) return session.printValue(CONFIG_KIND.toJson(config));
  const uses = await findUses(session, 'config', name);
  await session.print(formatConfigDescription(config, uses, session.nowMs, session.style));
}
