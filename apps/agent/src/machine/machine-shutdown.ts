import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';

/** Exists on machines that systemd manages. */
const SYSTEMD_DIRECTORY = '/run/systemd/system';
/** Longest wait for systemd, milliseconds: a stopping agent must not wait for it. */
const ASK_TIMEOUT_MS = 500;

/**
 * Returns true when systemd is shutting the machine down, which ends all containers too. False when
 * systemd does not say so, and on machines without systemd.
 * @param ask - Returns the state of the system manager; rejects when it does not answer.
 */
export async function isMachineShuttingDown(
  ask: () => Promise<string> = askSystemd,
): Promise<boolean> {
  try {
    return (await ask()).trim() === 'stopping';
  } catch {
    return false;
  }
}

/** Runs `systemctl is-system-running`, whose exit code is 0 only while all services run. */
function askSystemd(): Promise<string> {
  if (!existsSync(SYSTEMD_DIRECTORY)) return Promise.resolve('');
  return new Promise((resolve) =>
    execFile('systemctl', ['is-system-running'], { timeout: ASK_TIMEOUT_MS }, (_failure, stdout) =>
      resolve(stdout),
    ),
  );
}
