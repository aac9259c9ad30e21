import type { Config } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import { formatObjectName, parseObjectName } from '../../object-name.js';
import type { WorkloadName } from '../../names.js';
import { formatUses, summariseUses } from '../../views/use-view.js';
import { changeEach } from '../change-each.js';
import { getListOption, hasFlag, requireOperand } from '../options.js';
import { getWaitOptions } from '../wait-options.js';
import { confirmLoss, confirmOnTerminal } from '../values/confirm-values.js';
import { findValueProblem, type Values } from '../../value-rules.js';
import { readPreview } from '../values/effect-options.js';
import { readLabels } from '../values/read-labels.js';
import { hasValueOptions, readValues } from '../values/value-options.js';
import { changesReplicas, findUses, waitForRollouts } from '../values/workload-uses.js';
import { findConfig } from './find-config.js';
import { toConfigJson } from './show-configs.js';
import { formatValueChanges } from './value-changes.js';

/** Creates a config from the values that the options give. */
export async function createConfig(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readName(invocation);
  if (!hasValueOptions(invocation))
    throw createUsageFailure('give at least one value, such as --from-file app.conf');
  const data = await readValues(invocation, 'config');
  const config = await session.configs.createConfig(
    {
      ...name,
      data: { ...data },
      labels: readLabels(invocation, {}),
      immutable: hasFlag(invocation, 'immutable'),
      requestId: session.getRequestId(),
    },
    session.getCallOptions(),
  );
  await session.printStatus(`${formatObjectName('config', config)}: created`);
  if (session.isStructured) await session.printValue(toConfigJson(config));
}

/** Changes values, labels or immutability of a config. */
export async function updateConfig(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = readName(invocation);
  const isPreview = readPreview(invocation);
  const removed = getListOption(invocation, 'removeKey');
  const changesValues = hasValueOptions(invocation) || removed.length > 0;
  const labelTexts = getListOption(invocation, 'label');
  if (!changesValues && labelTexts.length === 0 && !hasFlag(invocation, 'immutable'))
    throw createUsageFailure(
      'nothing to change: give a value, --remove-key, --label or --immutable',
    );
  const given = await readValues(invocation, 'config');
  const current = await findConfig(session, name);
  const data = changesValues ? mergeValues(current, given, removed, invocation) : current.data;
  const request = {
    ...name,
    ...(changesValues ? { data: { ...data } } : {}),
    ...(labelTexts.length === 0 ? {} : { labels: readLabels(invocation, current.labels) }),
    immutable: hasFlag(invocation, 'immutable'),
    updateMask: {
      paths: [
        ...(changesValues ? ['data'] : []),
        ...(labelTexts.length === 0 ? [] : ['labels']),
        ...(hasFlag(invocation, 'immutable') ? ['immutable'] : []),
      ],
    },
    expectedGeneration: current.generation,
  };
  const changes = formatValueChanges(current.data, data, session.style);
  const uses = changes === '' ? [] : await findUses(session, 'config', name);
  const planned = await session.configs.updateConfig(
    { ...request, dryRun: true },
    session.getCallOptions(),
  );
  if (!session.isStructured) await session.print(changes + formatUses(uses));
  if (isPreview) return reportPreview(session, planned, current);
  const affected = uses.filter(changesReplicas);
  if (affected.length > 0)
    await confirmOnTerminal(
      invocation,
      `Change ${formatObjectName('config', name)}, and ${summariseUses(affected)}?`,
    );
  const config = await session.configs.updateConfig(
    { ...request, requestId: session.getRequestId() },
    session.getCallOptions(),
  );
  await reportUpdate(session, config, current);
  if (hasFlag(invocation, 'wait') && config.version > current.version)
    await waitForRollouts(session, uses, getWaitOptions(invocation));
  if (session.isStructured) await session.printValue(toConfigJson(config));
}

/** Deletes configs. */
export async function deleteConfigs(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const names = invocation.operands.map((text) =>
    parseObjectName(text, session.settings.namespace, 'config'),
  );
  const texts = names.map((name) => formatObjectName('config', name)).join(', ');
  await confirmLoss(
    invocation,
    `Delete ${texts}? All versions are lost.`,
    `all versions of ${texts} would be lost`,
  );
  const deleted = await changeEach(session, names, {
    describe: (name) => formatObjectName('config', name),
    change: async (name, requestId) => {
      await session.configs.deleteConfig({ ...name, requestId }, session.getCallOptions());
      await session.printStatus(`${formatObjectName('config', name)}: deleted`);
    },
  });
  deleted.throwFailure();
}

async function reportPreview(session: CliSession, planned: Config, current: Config): Promise<void> {
  if (session.isStructured) return session.printValue(toConfigJson(planned));
  await reportChange(session, planned, current, 'would get');
}

function reportUpdate(session: CliSession, config: Config, current: Config): Promise<void> {
  return reportChange(session, config, current, 'has');
}

async function reportChange(
  session: CliSession,
  config: Config,
  current: Config,
  verb: 'has' | 'would get',
): Promise<void> {
  const label = formatObjectName('config', config);
  const text =
    config.version > current.version
      ? `${verb} version ${config.version}`
      : config.generation > current.generation
        ? verb === 'has'
          ? 'updated; no new version, because the values are the same'
          : 'would be updated; no new version, because the values are the same'
        : 'unchanged';
  await session.printStatus(`${label}: ${text}`);
}

/** Returns the values after the change: the given ones, and the current ones that stay. */
function mergeValues(
  current: Config,
  given: Values,
  removed: readonly string[],
  invocation: Invocation,
): Values {
  const missing = removed.find((key) => !Object.hasOwn(current.data, key));
  if (missing !== undefined)
    throw new CliFailure(
      ExitCode.notFound,
      `--remove-key: ${formatObjectName('config', current)} has no key ${JSON.stringify(missing)}`,
    );
  const kept = hasFlag(invocation, 'replace') ? {} : current.data;
  const data = Object.fromEntries(
    Object.entries({ ...kept, ...given }).filter(
      ([key]) => !removed.includes(key) || Object.hasOwn(given, key),
    ),
  );
  if (Object.keys(data).length === 0)
    throw createUsageFailure('no value would be left; a config needs at least one');
  const problem = findValueProblem(data);
  if (problem !== undefined) throw createUsageFailure(problem);
  return data;
}

function readName(invocation: Invocation): WorkloadName {
  const text = requireOperand(invocation, 0, 'name of the config');
  return parseObjectName(text, invocation.session.settings.namespace, 'config');
}
