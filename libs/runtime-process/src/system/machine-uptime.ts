import { uptime } from 'node:os';

/**
 * Returns the milliseconds since the machine booted, in steps of 10 ms. All processes of a machine
 * read the same clock, so a process can measure the time since another process read the clock. The
 * clock also counts while the machine is suspended, like the clock of a coordinator elsewhere.
 * @see Linux manual page proc_uptime(5); clock_gettime(2), CLOCK_BOOTTIME
 */
export function readMachineUptimeMs(): number {
  return uptime() * 1_000;
}
