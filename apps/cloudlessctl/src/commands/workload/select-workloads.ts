import type { Command } from 'commander';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { parseWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import { getTextOption } from '../options.js';
import { listAllWorkloads } from './fetch-workloads.js';

/** Adds `--selector`, with which a command acts on every workload with certain labels. */
export function addSelectorOption(command: Command): Command {
  return command.option(
    '-l, --selector <selector>',
    'all workloads of the namespace with these labels, for example app=shop',
  );
}

/**
 * Returns the workloads that a command names: its operands, or with `--selector` all workloads of
 * the namespace with these labels. A name that is given twice is returned once.
 * @param texts - The names, each `[namespace/]name`.
 * @throws {@link CliFailure} with exit code 2 when both or neither are given, with exit code 3 when
 *   no workload has the labels.
 */
export async function selectWorkloads(
  invocation: Invocation,
  texts: readonly string[] = invocation.operands,
): Promise<readonly WorkloadName[]> {
  const { session } = invocation;
  const selector = getTextOption(invocation, 'selector');
  if (selector === undefined) {
    if (texts.length === 0)
      throw createUsageFailure('give the name of a workload, or select workloads with -l');
    return uniqueNames(texts.map((text) => parseWorkloadName(text, session.settings.namespace)));
  }
  if (texts.length > 0)
    throw createUsageFailure(
      `give names or -l, not both: -l ${selector} selects the workloads, so remove ${texts.join(' ')}`,
    );
  return (await listSelectedWorkloads(session, selector)).map(({ namespace, name }) => ({
    namespace,
    name,
  }));
}

/**
 * Lists the workloads of the namespace with certain labels.
 * @throws {@link CliFailure} with exit code 2 for an empty selector, which would select every
 *   workload, and with exit code 3 when no workload has the labels.
 */
export async function listSelectedWorkloads(
  session: CliSession,
  labelSelector: string,
): Promise<readonly Workload[]> {
  const { namespace } = session.settings;
  if (labelSelector.trim() === '')
    throw createUsageFailure('-l is empty, which would select every workload; give a label');
  const workloads = await listAllWorkloads(session, { namespace, labelSelector });
  if (workloads.length === 0)
    throw new CliFailure(
      ExitCode.notFound,
      `no workload in namespace ${namespace} has the labels ${labelSelector}`,
    );
  return workloads;
}

/** Returns each name once, in the order of its first occurrence. */
function uniqueNames(names: readonly WorkloadName[]): readonly WorkloadName[] {
  return [...new Map(names.map((name) => [`${name.namespace}/${name.name}`, name])).values()];
}
