/**
 * Returns true when the `count`-th occurrence of an event is logged: the 1st, 10th, 100th and so
 * on. A client that floods the server must not flood its log.
 */
export function shouldLogOccurrence(count: number): boolean {
  return /^10*$/.test(String(count));
}
