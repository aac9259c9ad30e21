import { Code, ConnectError } from '@connectrpc/connect';
import type { Config } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import { formatObjectName } from '../../object-name.js';
import { formatCount } from '../../output/human.js';
import { summariseUses } from '../../views/use-view.js';
import { confirmOnTerminal } from '../values/confirm-values.js';
import { changesReplicas } from '../values/workload-uses.js';
import { formatConfigChanges, type ConfigChange } from './plan-configs.js';

/** A change of a config that a manifest describes. */
type PutChange = Exclude<ConfigChange, { readonly action: 'DELETE' }>;

/**
 * Shows the changes of configs, asks on a terminal when replicas change, and makes the changes
 * except deletions.
 * @returns The configs that the manifests describe, in their order.
 * @throws the error of the first change that fails; the changes after that are not made.
 */
export async function applyConfigs(
  invocation: Invocation,
  changes: readonly ConfigChange[],
): Promise<readonly Config[]> {
  const { session } = invocation;
  const puts = changes.filter((change): change is PutChange => change.action !== 'DELETE');
  if (!session.isStructured) await session.print(formatConfigChanges(puts, session.style));
  const affected = puts.flatMap(({ uses }) => uses.filter(changesReplicas));
  if (affected.length > 0)
    await confirmOnTerminal(invocation, `Change the configs, and ${summariseUses(affected)}?`);
  const configs: Config[] = [];
  let applied = 0;
  for (const [index, change] of puts.entries()) {
    try {
      configs.push(await putConfig(session, change));
    } catch (reason) {
      const others = puts.slice(index).filter(({ action }) => action !== 'NOTHING');
      if (applied > 0)
        await session.printNotice(
          `cloudlessctl: applied before the failure: ${formatCount(applied, 'config')}; not applied: ${others.map((other) => formatObjectName('config', other)).join(', ')}`,
        );
      throw reason;
    }
    if (change.action !== 'NOTHING') applied += 1;
  }
  return configs;
}

/** Deletes a config; a config that is gone already counts as deleted. */
export async function deleteConfig(
  session: CliSession,
  { namespace, name }: Pick<ConfigChange, 'namespace' | 'name'>,
): Promise<void> {
  const requestId = session.getRequestId(`config/${namespace}/${name}`);
  try {
    await session.configs.deleteConfig({ namespace, name, requestId }, session.getCallOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.NotFound) throw reason;
  }
  await session.printStatus(`${formatObjectName('config', { namespace, name })}: deleted`);
}

async function putConfig(session: CliSession, change: PutChange): Promise<Config> {
  const { action, current, wanted, paths, namespace, name } = change;
  if (action === 'NOTHING' && current !== undefined) return current;
  const fields = {
    ...{ namespace, name, data: { ...wanted.data }, labels: { ...wanted.labels } },
    immutable: wanted.immutable,
    requestId: session.getRequestId(`config/${namespace}/${name}`),
  };
  const config =
    current === undefined
      ? await session.configs.createConfig(fields, session.getCallOptions())
      : await session.configs.updateConfig(
          {
            ...fields,
            updateMask: { paths: [...paths] },
            expectedGeneration: current.generation,
          },
          session.getCallOptions(),
        );
  const version = current === undefined ? 'created' : `has version ${config.version}`;
  await session.printStatus(`${formatObjectName('config', config)}: ${version}`);
  return config;
}
