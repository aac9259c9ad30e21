import type { JsonValue } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import type { Config } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { ManifestConfig } from '../../manifest/manifest-config.js';
import type { WorkloadName } from '../../names.js';
import { formatObjectName } from '../../object-name.js';
import type { Style } from '../../output/style.js';
import { formatUses, type Use } from '../../views/use-view.js';
import { requireFreshChanges } from '../objects/object-change.js';
import { findUses } from '../values/workload-uses.js';
import { formatValueChanges, isEqual } from './value-changes.js';

/** A change of one config that a manifest describes. */
interface ConfigPut extends WorkloadName {
  readonly action: 'CREATE' | 'UPDATE' | 'NOTHING';
  readonly wanted: ManifestConfig;
  /** Undefined: the config does not exist. */
  readonly current: Config | undefined;
  /** The fields that change. */
  readonly paths: readonly string[];
  /** The workloads that new values change; empty when the values stay. */
  readonly uses: readonly Use[];
}

/** Changes of one config by a manifest. */
export type ConfigChange = ConfigPut | (WorkloadName & { readonly action: 'DELETE' });

/**
 * Compares configs of manifests with those of the cluster. Nothing is changed.
 * @throws {@link CliFailure} with exit code 4 that lists the immutable configs whose values differ,
 *   or the configs whose manifest has an older generation.
 */
export async function planConfigs(
  session: CliSession,
  configs: readonly ManifestConfig[],
): Promise<readonly ConfigChange[]> {
  const changes: ConfigPut[] = [];
  const refusals: string[] = [];
  for (const wanted of configs) {
    const { namespace, name } = wanted;
    const current = await getConfigIfExists(session, wanted);
    const paths = current === undefined ? [] : findPaths(current, wanted);
    if (current?.immutable === true && paths.includes('data'))
      refusals.push(
        `${formatObjectName('config', wanted)}: is immutable, and its values differ; give the config of the manifest another name`,
      );
    const uses = paths.includes('data') ? await findUses(session, 'config', wanted) : [];
    const action = current === undefined ? 'CREATE' : paths.length > 0 ? 'UPDATE' : 'NOTHING';
    changes.push({ namespace, name, action, wanted, current, paths, uses });
  }
  if (refusals.length > 0)
    throw new CliFailure(ExitCode.conflict, ['nothing was applied:', ...refusals].join('\n'));
  requireFreshChanges('config', changes);
  return changes;
}

async function getConfigIfExists(
  session: CliSession,
  { namespace, name }: WorkloadName,
): Promise<Config | undefined> {
  try {
    return await session.configs.getConfig({ namespace, name }, session.getCallOptions());
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.NotFound) return undefined;
    throw reason;
  }
}

function findPaths(current: Config, wanted: ManifestConfig): readonly string[] {
  const keys = new Set([...Object.keys(current.data), ...Object.keys(wanted.data)]);
  const labels = new Set([...Object.keys(current.labels), ...Object.keys(wanted.labels)]);
  return [
    ...([...keys].every((key) => isEqual(current.data[key], wanted.data[key])) ? [] : ['data']),
    ...([...labels].every((key) => current.labels[key] === wanted.labels[key]) ? [] : ['labels']),
    // A config stays immutable.
    ...(wanted.immutable && !current.immutable ? ['immutable'] : []),
  ];
}

const ACTION_TEXTS: Readonly<Record<ConfigChange['action'], string>> = {
  CREATE: 'create',
  UPDATE: 'update',
  NOTHING: 'unchanged',
  DELETE: 'delete',
};

/** Formats the changes of configs with their values and the workloads that they change. */
export function formatConfigChanges(changes: readonly ConfigChange[], style: Style): string {
  return changes
    .map((change) => {
      const title = `${formatObjectName('config', change)}: ${ACTION_TEXTS[change.action]}\n`;
      if (change.action === 'DELETE' || change.action === 'NOTHING') return title;
      const { current, wanted, paths, uses } = change;
      const others = paths.filter((path) => path !== 'data');
      return [
        title,
        formatValueChanges(current?.data ?? {}, wanted.data, style),
        others.length === 0 ? '' : `  ${others.join(', ')}: changed\n`,
        formatUses(uses),
      ].join('');
    })
    .join('');
}

/** Returns the changes of configs in the form of `-o json`. */
export function toConfigChangesJson(changes: readonly ConfigChange[]): JsonValue {
  return changes.map((change) => ({
    namespace: change.namespace,
    name: change.name,
    action: change.action,
    ...(change.action === 'DELETE'
      ? {}
      : {
          paths: [...change.paths],
          uses: change.uses.map(({ namespace, name, effect }) => ({ namespace, name, effect })),
        }),
  }));
}
