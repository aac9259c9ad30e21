import type { WorkloadName } from '../names.js';
import type { CliSession } from '../call/cli-session.js';

/** Returns the hint `resume the rollout with: <command>`. */
export function formatResumeHint(session: CliSession, name: WorkloadName): string {
  return `resume the rollout with: cloudlessctl rollout resume ${formatShortName(session, name)}`;
}

/** Returns the hint `promote the rollout with: <command>`. */
export function formatPromoteHint(session: CliSession, name: WorkloadName): string {
  return `promote the rollout with: cloudlessctl rollout promote ${formatShortName(session, name)}`;
}

/** Returns the name that selects the workload on the command line with the current settings. */
function formatShortName(session: CliSession, { namespace, name }: WorkloadName): string {
  return namespace === session.settings.namespace ? name : `${namespace}/${name}`;
}
