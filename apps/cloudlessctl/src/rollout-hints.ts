import type { WorkloadName } from './names.js';
import type { Session } from './session.js';

/** How a paused rollout goes on. */
export function resumeHint(session: Session, name: WorkloadName): string {
  return `it goes on with: cloudlessctl rollout resume ${shortName(session, name)}`;
}

/** How a rollout that waits for it is promoted. */
export function promoteHint(session: Session, name: WorkloadName): string {
  return `it goes on with: cloudlessctl rollout promote ${shortName(session, name)}`;
}

function shortName(session: Session, { namespace, name }: WorkloadName): string {
  return namespace === session.settings.namespace ? name : `${namespace}/${name}`;
}
