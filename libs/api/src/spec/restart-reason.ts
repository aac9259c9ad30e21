import type { ReplicaStatus } from '../gen/cloudless/api/workload_pb.js';

/** Text between cause and delay in the reason that an agent reports for a replica in back-off. */
const RESTART_DELAY = ', restarting in ';

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
