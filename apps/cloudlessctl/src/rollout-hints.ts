import type { WorkloadName } from './names.js';
import type { Session } from './session.js';

/** Returns the command that resumes a paused rollout. */
export function resumeHint(session: Session, name: WorkloadName): string {
  return `resume the rollout with: cloudlessctl rollout resume ${shortName(session, name)}`;
}

/** Returns the command that promotes a rollout. */
export function promoteHint(session: Session, name: WorkloadName): string {
  return `promote the rollout with: cloudlessctl rollout promote ${shortName(session, name)}`;
}

function shortName(session: Session, { namespace, name }: WorkloadName): string {
  return namespace === session.settings.namespace ? name : `${namespace}/${name}`;
}
