import { readFileSync, writeFileSync } from 'node:fs';

/** Below all that is not protected itself; container runtimes and the kubelet are at -999, Docker's daemon at -500. */
const PROTECTED = -900;
/** @see proc_pid_oom_score_adj(5): from -1000 to 1000; the greater, the sooner a process is ended when memory runs out. */
const OWN_SCORE = '/proc/self/oom_score_adj';

/**
 * Makes this process one of the last that the kernel ends when memory runs out. What it starts from now on inherits that; see
 * {@link endMemoryProtection}.
 * @returns Whether it is protected: not without the privilege (CAP_SYS_RESOURCE), and not on systems other than Linux.
 */
export function protectFromOutOfMemory(file = OWN_SCORE): boolean {
  try {
    if (Number(readFileSync(file, 'utf8')) > PROTECTED) writeFileSync(file, `${PROTECTED}\n`, { flag: 'r+' });
    return true;
  } catch {
    return false;
  }
}

/** Gives up a protection that this process inherited, so that what it starts for others does not have it. Needs no privilege. */
export function endMemoryProtection(file = OWN_SCORE): void {
  try {
    if (Number(readFileSync(file, 'utf8')) < 0) writeFileSync(file, '0\n', { flag: 'r+' });
  } catch {
    // no such thing on this system
  }
}
