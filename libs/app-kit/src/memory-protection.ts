import { readFileSync, writeFileSync } from 'node:fs';

/**
 * Below all unprotected programs. Container runtimes and the kubelet have -999, the Docker daemon
 * -500.
 */
const PROTECTED_SCORE = -900;
/**
 * Range -1000 to 1000; a process with a greater score is killed sooner.
 * @see proc_pid_oom_score_adj(5)
 */
const OWN_SCORE_FILE = '/proc/self/oom_score_adj';

/**
 * Makes this process one of the last that the kernel kills when memory runs out. Processes that it
 * starts afterwards inherit the protection: see {@link endMemoryProtection}.
 * @returns False without the privilege (CAP_SYS_RESOURCE) and on systems other than Linux.
 */
export function protectFromOutOfMemory(file = OWN_SCORE_FILE): boolean {
  try {
    if (Number(readFileSync(file, 'utf8')) > PROTECTED_SCORE)
      writeFileSync(file, `${PROTECTED_SCORE}\n`, { flag: 'r+' });
    return true;
  } catch {
    return false;
  }
}

/** Removes an inherited protection, so that child processes do not have it. Needs no privilege. */
export function endMemoryProtection(file = OWN_SCORE_FILE): void {
  try {
    if (Number(readFileSync(file, 'utf8')) < 0) writeFileSync(file, '0\n', { flag: 'r+' });
  } catch {
    // this system has no scores
  }
}
