/**
 * The phrase for people that goes with an exit code.
 * @param exitCode - As in `ContainerStatus.exitCode`; -1 when nobody saw it.
 * @param signal - Name of the signal that ended the process, if one did.
 */
export function exitReason(exitCode: number, signal?: string): string {
  if (signal !== undefined) return `killed by ${signal}`;
  if (exitCode === 0) return 'completed';
  return exitCode < 0 ? 'ended while nobody could see its exit code' : `exit code ${exitCode}`;
}
