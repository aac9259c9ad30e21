import { describeFailure } from '@cloudless/app-kit/settings';

/**
 * Runs a command, and keeps the process alive until the command has ended, although the timers of
 * the command do not.
 * @param title - Name of the command in the message of a failure, which goes to standard error.
 * @returns The exit code: that of the command, or of its failure.
 */
export async function runToExitCode(
  title: string,
  command: () => Promise<number>,
): Promise<number> {
  const alive = setInterval(() => undefined, 2 ** 30);
  try {
    return await command();
  } catch (reason) {
    const { text, exitCode } = describeFailure(title, reason);
    process.stderr.write(text);
    return exitCode;
  } finally {
    clearInterval(alive);
  }
}
