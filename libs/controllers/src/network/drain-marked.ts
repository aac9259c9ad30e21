/**
 * Removes and handles the members of a set until the set is empty or `isDone` returns true.
 * @param handle - Called after the removal, so that a member may be marked again.
 */
export function drainMarked(
  marked: Set<string>,
  isDone: () => boolean,
  handle: (key: string) => void,
): void {
  for (const key of marked) {
    if (isDone()) return;
    marked.delete(key);
    handle(key);
  }
}
