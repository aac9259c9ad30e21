/**
 * Returns true when a node id matches a pattern in which `*` stands for any characters. The time is
 * at most proportional to the product of both lengths.
 * @param pattern - Empty: every id matches.
 */
export function matchesNodeId(pattern: string, nodeId: string): boolean {
  if (pattern === '') return true;
  let [at, patternAt] = [0, 0];
  /** Where to continue when the characters after the last `*` do not match. */
  let [retryAt, retryPatternAt] = [0, -1];
  while (at < nodeId.length) {
    if (pattern[patternAt] === '*') {
      retryPatternAt = patternAt + 1;
      retryAt = at;
      patternAt = retryPatternAt;
    } else if (pattern[patternAt] === nodeId[at]) {
      at += 1;
      patternAt += 1;
    } else if (retryPatternAt >= 0) {
      retryAt += 1;
      at = retryAt;
      patternAt = retryPatternAt;
    } else return false;
  }
  while (pattern[patternAt] === '*') patternAt += 1;
  return patternAt === pattern.length;
}
