/**
 * Formats an exit code for people, such as `exit code 3`.
 * @param exitCode - As in `ContainerStatus.exitCode`; -1 when it could not be observed.
 * @param signal - Name of the signal that ended the process, if any.
 */
export function formatExitReason(exitCode: number, signal?: string): string {
  if (signal !== undefined) return `killed by ${signal}`;
  if (exitCode === 0) return 'completed';
  return exitCode < 0 ? 'ended with an unknown exit code' : `exit code ${exitCode}`;
}
