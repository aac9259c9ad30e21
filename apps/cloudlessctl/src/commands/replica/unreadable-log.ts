import { Code } from '@connectrpc/connect';
import type { LogEntry, UnreadableLog } from '@cloudless/api';
import { getReplicaNumber } from '../../names.js';
import { toCodeName } from '../../call/call-failure.js';

/**
 * Returns the notice for a log that is missing in the output: which log, why, and what to do.
 * @param workload - Name of the workload as in the prefixes of lines; absent for the log of a
 *   replica or container.
 */
export function describeUnreadable(
  { replicaId }: Pick<LogEntry, 'replicaId'>,
  { nodeId, code, message, retried }: UnreadableLog,
  workload?: string,
): string {
  const replica = workload === undefined ? replicaId : `${workload}-${getReplicaNumber(replicaId)}`;
  const cause = `the log of ${replica} cannot be read: ${message} (${toCodeName(code)})`;
  return `${cause}. ${adviseOn(code, nodeId, retried)}`;
}

function adviseOn(code: Code, nodeId: string, retried: boolean): string {
  if (retried)
    return `Lines of this log follow once the node answers; see cloudlessctl node describe ${nodeId}`;
  if (code === Code.NotFound)
    return `Node ${nodeId} no longer has the log, so there is nothing to do`;
  if (code === Code.Unavailable)
    return `Repeat the command when the node answers; see cloudlessctl node describe ${nodeId}`;
  return `Repeat the command; if that does not help, see the log of the agent on node ${nodeId}`;
}
