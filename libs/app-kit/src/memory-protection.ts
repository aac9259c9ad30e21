import { readFileSync, writeFileSync } from 'node:fs';

/**
 * Score of a protected program, below the scores of unprotected programs. Container runtimes and
 * the kubelet have -999, the Docker daemon has -500.
 */
const PROTECTED_SCORE = -900;
/**
 * File with the score of this process, -1000 to 1000. The kernel kills processes with a greater
 * score first.
 * @see proc_pid_oom_score_adj(5)
 */
const OWN_SCORE_FILE = '/proc/self/oom_score_adj';

/**
 * Makes this process one of the last that the kernel kills when memory runs out. Processes that it
 * starts afterwards inherit the protection: see {@link endMemoryProtection}.
 * @param file - Only tests pass another file.
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

/**
 * Removes the protection that this process inherited. Call it in programs that a protected program
 * starts. Needs no privilege.
 * @param file - Only tests pass another file.
 */
export function endMemoryProtection(file = OWN_SCORE_FILE): void {
  try {
    if (Number(readFileSync(file, 'utf8')) < 0) writeFileSync(file, '0\n', { flag: 'r+' });
  } catch {
    // This system has no scores.
  }
}
