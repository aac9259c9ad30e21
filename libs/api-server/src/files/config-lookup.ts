import { create } from '@bufbuild/protobuf';
import { ConfigSchema, resolveNamespace, type Config } from '@cloudless/api';
import type { ConfigRecord } from '@cloudless/api/store';
import { CloudlessError, definedFields } from '@cloudless/base';
import { toConfigKeyId, type ClusterView, type Stored } from '@cloudless/cluster-state';
import { checkGeneration } from '../generation.js';
import type { WorkloadName } from '../lookup.js';

/** Returns the key of the config that a request names. */
export function toConfigKey(request: WorkloadName): string {
  return toConfigKeyId(resolveNamespace(request), request.name);
}

/**
 * Returns the config that a request names.
 * @throws reason CONFIG_NOT_FOUND.
 */
export function requireConfig(view: ClusterView, request: WorkloadName): Stored<ConfigRecord> {
  const key = toConfigKey(request);
  const config = view.config(key);
  if (config !== undefined) return config;
  throw new CloudlessError('CONFIG_NOT_FOUND', `config "${key}" not found`);
}

/**
 * Returns the config that a request changes.
 * @throws the errors of {@link requireConfig}; kind `conflict` when its generation is not the
 *   expected one.
 */
export function requireExpectedConfig(
  view: ClusterView,
  request: WorkloadName & { readonly expectedGeneration?: bigint | undefined },
): Stored<ConfigRecord> {
  const config = requireConfig(view, request);
  const { generation } = config.value;
  const name = toConfigKey(request);
  checkGeneration({ kind: 'config', name, generation }, request.expectedGeneration);
  return config;
}

/**
 * Creates the error for a version that is not kept.
 * @param record - The config.
 */
export function createVersionNotFoundError(
  { namespace, name, versions }: ConfigRecord,
  version: number,
): CloudlessError {
  const kept = versions.map((known) => known.version).join(', ');
  return new CloudlessError(
    'CONFIG_NOT_FOUND',
    `config "${namespace}/${name}" has no version ${version}; the kept versions are ${kept}`,
  );
}

/** Builds the API message of a config from its record, without values. */
export function presentConfig(record: ConfigRecord): Config {
  const { namespace, name, uid, labels, immutable, generation, version, versions } = record;
  const { createdAt, updatedAt } = record;
  return create(ConfigSchema, {
    ...{ namespace, name, uid, labels, immutable, generation, version, versions },
    ...definedFields({ createdAt, updatedAt }),
  });
}
