import type { StreamLogsRequest } from '../gen.js';

/**
 * Returns the name of a field that cannot be combined with `previous` and is set; undefined when
 * there is none.
 */
export function findPreviousConflict({
  follow,
  containerId,
  after,
  afterSequence,
}: Pick<StreamLogsRequest, 'follow' | 'containerId' | 'after' | 'afterSequence'>):
  string | undefined {
  if (follow) return 'follow';
  if (containerId !== '') return 'container_id';
  if (after.length > 0) return 'after';
  return afterSequence > 0n ? 'after_sequence' : undefined;
}
