import { clone, create } from '@bufbuild/protobuf';
import {
  RolloutStatus_Phase,
  VersionInfoSchema,
  WorkloadPlanSchema,
  WorkloadSpecSchema,
  WorkloadVersionSchema,
} from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { printManifests } from '../../manifest/print-manifest.js';
import { formatWorkloadName } from '../../names.js';
import type { WorkloadName } from '../../names.js';
import { formatStyledTime } from '../../output/style.js';
import { toMessageJson } from '../../call/cli-session.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatPlanLines } from '../../views/plan-view.js';
import { formatRolloutLine, formatVersionTable } from '../../views/rollout-view.js';
import { requireWorkloadName, readVersionOption } from './change-rollout.js';

/** Prints the state of a rollout and its remaining steps. */
export async function showPlan(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = requireWorkloadName(invocation);
  const workload = await session.client.getWorkload(name, session.getCallOptions());
  // A plan without a change of the spec contains the remaining steps.
  const remaining = await session.client.planWorkload(
    { ...name, spec: {} },
    session.getCallOptions(),
  );
  if (session.isStructured) return session.printValue(toMessageJson(WorkloadPlanSchema, remaining));
  await session.printStatus(`${formatWorkloadName(name)}: ${formatRolloutLine(workload)}`);
  const lines = formatPlanLines(remaining, session.style);
  await session.print(
    lines.length === 0
      ? `  no steps left${explainMissingSteps(workload)}\n`
      : `${lines.join('\n')}\n`,
  );
}

/** Returns why the plan has no steps; empty when the rollout is complete. */
function explainMissingSteps({ status }: Workload): string {
  switch (status?.rollout?.phase) {
    case RolloutStatus_Phase.PAUSED:
      return status.rollout.waitsForPromotion
        ? ' until the rollout is promoted'
        : ' while the rollout is paused';
    case RolloutStatus_Phase.FAILED:
      return ' because the rollout has failed';
    default:
      return '';
  }
}

/** Prints the stored versions, or one version as a manifest. */
export async function showHistory(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const name = requireWorkloadName(invocation);
  const version = readVersionOption(invocation, 'version');
  if (version !== undefined) return showVersion(session, name, version);
  const { status } = await session.client.getWorkload(name, session.getCallOptions());
  const versions = status?.versions ?? [];
  if (session.isStructured)
    await session.printValue({
      versions: versions.map((info) => toMessageJson(VersionInfoSchema, info)),
    });
  else await session.print(formatVersionTable(versions, session.nowMs, session.style));
}

/** Prints the replica template of a stored version as a manifest. */
async function showVersion(
  session: CliSession,
  { namespace, name }: WorkloadName,
  version: number,
): Promise<void> {
  const stored = await session.client.getWorkloadVersion(
    { namespace, name, version },
    session.getCallOptions(),
  );
  if (session.isStructured && session.settings.output !== 'manifest')
    return session.printValue(toMessageJson(WorkloadVersionSchema, stored));
  const { info, template } = stored;
  const summary = [
    `version ${version}`,
    info?.cause ?? '',
    formatStyledTime(info?.createdAt, session.style),
  ]
    .filter((part) => part !== '')
    .join(', ');
  const { spec: current } = await session.client.getWorkload(
    { namespace, name },
    session.getCallOptions(),
  );
  // A version is the replica template; the other settings are those of the workload now.
  const { replicas, rollout, disconnect } = current ?? {};
  const spec = Object.assign(
    clone(WorkloadSpecSchema, template ?? create(WorkloadSpecSchema)),
    definedFields({ replicas, rollout, disconnect }),
  );
  const note = 'replicas, rollout and disconnect are those of the workload now';
  await session.print(`# ${summary}; ${note}\n`);
  await session.print(printManifests([{ namespace, name, spec }]));
}
