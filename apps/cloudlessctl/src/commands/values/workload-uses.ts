import { Reload_Mode as Mode, WorkloadUse_Effect as Effect, type Workload } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { formatWorkloadName, type WorkloadName } from '../../names.js';
import type { Use } from '../../views/use-view.js';
import { WAIT_TIMEOUT_MS, waitUntilSettled, type WaitOptions } from '../../wait/wait-workload.js';
import { watchWorkload } from '../../wait/watch-workload.js';
import { listAllWorkloads } from '../workload/fetch-workloads.js';

/** A secret or config, or the kind of one. */
export type ValueNoun = 'secret' | 'config';

/** Returns the workloads of a namespace whose specs use a secret or config, by name. */
export async function findUses(
  session: CliSession,
  noun: ValueNoun,
  { namespace, name }: WorkloadName,
): Promise<readonly Use[]> {
  const workloads = await listAllWorkloads(session, { namespace });
  return workloads
    .filter(({ deletionRequestedAt }) => deletionRequestedAt === undefined)
    .flatMap((workload) => {
      const use = findUse(workload, noun, name);
      return use === undefined ? [] : [use];
    });
}

function findUse(workload: Workload, noun: ValueNoun, name: string): Use | undefined {
  const { spec } = workload;
  const references = (noun === 'secret' ? spec?.secrets : spec?.configs) ?? [];
  const reference = references.find((each) => each.name === name);
  const id = { namespace: workload.namespace, name: workload.name, workload };
  if (reference === undefined)
    return noun === 'secret' && spec?.imagePull?.secret === name
      ? { ...id, effect: Effect.IMAGE_PULL }
      : undefined;
  const { version, reload } = reference;
  if (version !== 0) return { ...id, effect: Effect.NOTHING, pinned: version };
  return { ...id, effect: EFFECTS[reload?.mode ?? Mode.RESTART] };
}

const EFFECTS: Readonly<Record<Mode, Effect>> = {
  [Mode.RESTART]: Effect.ROLLOUT,
  [Mode.SIGNAL]: Effect.SIGNAL,
  [Mode.NONE]: Effect.FILES,
};

/** Returns true when a new version changes running replicas of a workload. */
export function changesReplicas({ effect }: Use): boolean {
  return effect === Effect.ROLLOUT || effect === Effect.SIGNAL || effect === Effect.FILES;
}

/**
 * Waits until the workloads that a new version rolls out have completed their rollouts.
 * @param uses - The uses as they were before the change.
 * @throws {@link CliFailure} as {@link waitUntilSettled}, for the first workload that fails.
 */
export async function waitForRollouts(
  session: CliSession,
  uses: readonly Use[],
  options: WaitOptions,
): Promise<void> {
  for (const use of uses) {
    if (use.effect !== Effect.ROLLOUT) continue;
    await waitUntilSettled(session, await waitForNewVersion(session, use), options);
  }
}

/** Waits until a workload has the version that the coordinator makes for the new values. */
function waitForNewVersion(session: CliSession, { workload }: Use): Promise<Workload> {
  const label = formatWorkloadName(workload);
  const version = workload.status?.version ?? 0;
  return watchWorkload<Workload>(session, {
    subject: workload,
    timeoutMs: session.settings.timeoutMs ?? WAIT_TIMEOUT_MS,
    onTimeout: (after) =>
      new CliFailure(ExitCode.timeout, `${label} got no new version within ${after}`),
    evaluate: async (state) => {
      if (state === undefined)
        throw new CliFailure(ExitCode.conflict, `${label} was deleted while waiting`);
      return (state.status?.version ?? 0) > version ? state : undefined;
    },
  });
}
