import type { WorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';

/** Returns the command that resumes a paused rollout. */
export function formatResumeHint(session: CliSession, name: WorkloadName): string {
  return `resume the rollout with: cloudlessctl rollout resume ${formatShortName(session, name)}`;
}

/** Returns the command that promotes a rollout. */
export function formatPromoteHint(session: CliSession, name: WorkloadName): string {
  return `promote the rollout with: cloudlessctl rollout promote ${formatShortName(session, name)}`;
}

function formatShortName(session: CliSession, { namespace, name }: WorkloadName): string {
  return namespace === session.settings.namespace ? name : `${namespace}/${name}`;
}
