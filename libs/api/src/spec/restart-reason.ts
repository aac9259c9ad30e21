import type { ReplicaStatus } from '../gen/cloudless/api/workload_pb.js';

/** Text between cause and delay in the reason that an agent reports for a replica in back-off. */
const RESTART_DELAY = ', restarting in ';
/** Start of the end reason after a failed start. Agents and coordinators of any version agree. */
const NOT_STARTED = 'not started: ';

/**
 * Formats the reason of a replica in back-off.
 * @param cause - Why the last container ended or could not be started.
 * @param delay - Time until the next start, for people.
 */
export function formatRestartReason(cause: string, delay: string): string {
  return `${cause}${RESTART_DELAY}${delay}`;
}

/**
 * Returns why a replica in back-off waits for its next start, without the delay: `exit code 1`.
 * Empty when its agent has reported no reason.
 */
export function getBackoffCause({
  reason,
  lastEndReason,
}: Pick<ReplicaStatus, 'reason' | 'lastEndReason'>): string {
  if (lastEndReason !== '') return lastEndReason;
  const end = reason.lastIndexOf(RESTART_DELAY);
  return end < 0 ? reason : reason.slice(0, end);
}

/**
 * Formats the `last_end_reason` of a replica whose container has run before and whose last start
 * failed.
 */
export function formatNotStarted(cause: string): string {
  return `${NOT_STARTED}${cause}`;
}

/**
 * Returns the cause of a failed start from `last_end_reason`; undefined when the last end was that
 * of a container, or when no container has ended.
 */
export function getNotStartedCause(lastEndReason: string): string | undefined {
  return lastEndReason.startsWith(NOT_STARTED)
    ? lastEndReason.slice(NOT_STARTED.length)
    : undefined;
}
