import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { DNS_LABEL_RULE, isDnsLabel } from '../../dns-label.js';
import type { ManifestWorkload } from '../../manifest/parse-manifest.js';
import { formatWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import { getTextOption, hasFlag } from '../options.js';
import { listAllWorkloads } from './fetch-workloads.js';

/** Label that holds the set of a workload. `apply --set` writes it, and `--prune` reads it. */
export const APPLY_SET_LABEL = 'apply-set';

/**
 * Returns the name of the set that `--set` gives to all workloads of an apply; undefined without
 * `--set`.
 * @throws {@link CliFailure} with exit code 2 for an invalid name, for `--prune` without `--set`.
 */
export function readSetOption(invocation: Invocation): string | undefined {
  const name = getTextOption(invocation, 'set');
  if (name !== undefined && !isDnsLabel(name))
    throw createUsageFailure(`--set: expected ${DNS_LABEL_RULE}, got ${JSON.stringify(name)}`);
  if (hasFlag(invocation, 'prune') && name === undefined)
    throw createUsageFailure(
      '--prune deletes only workloads of one set: give the name with --set, also when the set is applied for the first time',
    );
  return name;
}

/**
 * Returns the workloads with the label of the set.
 * @throws {@link CliFailure} with exit code 2 when a manifest has the label of another set.
 */
export function addToSet(
  workloads: readonly ManifestWorkload[],
  setName: string,
): readonly ManifestWorkload[] {
  return workloads.map((workload) => {
    const { labels } = workload.spec;
    const other = labels[APPLY_SET_LABEL];
    if (other !== undefined && other !== setName)
      throw createUsageFailure(
        `${formatWorkloadName(workload)}: the manifest has the label ${APPLY_SET_LABEL}=${other}, and --set is ${setName}; remove the label`,
      );
    const spec = { ...workload.spec, labels: { ...labels, [APPLY_SET_LABEL]: setName } };
    return { ...workload, spec: create(WorkloadSpecSchema, spec) };
  });
}

/** A workload to delete, unless its spec changes before the deletion. */
export interface PrunedWorkload extends WorkloadName {
  readonly expectedGeneration: bigint;
}

/**
 * Returns the workloads of the set that no manifest contains any more, in the namespaces of the
 * manifests and of the command line.
 * @throws {@link CliFailure} with exit code 4 when a manifest names a workload of another set, so
 *   that two sets never delete each other's workloads.
 */
export async function findWorkloadsToPrune(
  session: CliSession,
  workloads: readonly ManifestWorkload[],
  setName: string,
  isPruned: boolean,
): Promise<readonly PrunedWorkload[]> {
  const applied = new Set(workloads.map(formatWorkloadName));
  const members = await listAllWorkloads(session, { labelSelector: APPLY_SET_LABEL });
  for (const member of members) {
    const owner = member.spec?.labels[APPLY_SET_LABEL] ?? '';
    if (owner === setName || !applied.has(formatWorkloadName(member))) continue;
    throw new CliFailure(
      ExitCode.conflict,
      `${formatWorkloadName(member)} belongs to the set ${owner}, not to ${setName}; remove it from the manifests of one set, or first apply its manifest without --set`,
    );
  }
  if (!isPruned) return [];
  const namespaces = new Set([
    session.settings.namespace,
    ...workloads.map(({ namespace }) => namespace),
  ]);
  return members
    .filter(
      (member) =>
        namespaces.has(member.namespace) &&
        member.spec?.labels[APPLY_SET_LABEL] === setName &&
        member.deletionRequestedAt === undefined &&
        !applied.has(formatWorkloadName(member)),
    )
    .map(({ namespace, name, generation }) => ({
      namespace,
      name,
      expectedGeneration: generation,
    }));
}
