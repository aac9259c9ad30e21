/**
 * Says whether the `count`-th of many equal events is worth a line in the log: who floods the
 * server shall not flood its log.
 */
export function isPowerOfTen(count: number): boolean {
  return /^10*$/.test(String(count));
}
