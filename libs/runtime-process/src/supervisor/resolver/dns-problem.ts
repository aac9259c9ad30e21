/** Completes the reason why a process has no resolv.conf of its own. */
export function toDnsProblem(reason: string): string {
  return `names of services do not resolve in this process: ${reason}`;
}
