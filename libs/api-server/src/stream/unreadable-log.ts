import { create } from '@bufbuild/protobuf';
import { LogEntrySchema, toConnectError, type LogEntry } from '@cloudless/api';
import type { LogTarget } from './stream-target.js';

/**
 * Creates the entry that names a log that cannot be read.
 * @param reason - The error of the read. The message of an internal error is not disclosed.
 * @param retried - True when the stream goes on with the log as soon as it can be read.
 */
export function createUnreadableEntry(
  target: LogTarget,
  reason: unknown,
  retried: boolean,
): LogEntry {
  const { id, nodeId, containerId } = target.replica;
  const { code, rawMessage } = toConnectError(reason);
  return create(LogEntrySchema, {
    replicaId: id,
    containerId: target.kind === 'container' ? target.containerId : containerId,
    unreadable: { nodeId, code, message: rawMessage, retried },
  });
}
