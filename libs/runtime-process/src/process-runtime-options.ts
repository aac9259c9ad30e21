import type { Clock, Log, Random } from '@cloudless/base';

/** Options of opening the process runtime of a directory. */
export interface ProcessRuntimeOptions {
  /**
   * Absolute path of the directory of the runtime, created with mode 0700 when it does not exist.
   * One supervisor serves one directory.
   */
  readonly directory: string;
  /**
   * Command that calls `runSupervisor`, such as `[process.execPath, '/opt/cloudless/agent.js',
   * 'supervisor']`. The runtime appends two arguments.
   */
  readonly supervisorCommand: readonly string[];
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  /**
   * Reads the milliseconds since the machine booted, which the supervisor reads too. Default: those
   * of `os.uptime`.
   */
  readonly machineUptimeMs?: () => number;
  /** Range of the ports that containers get, both ends included. Default 20000 to 29999. */
  readonly portRange?: { readonly from: number; readonly to: number };
  /**
   * Starts nothing and reports no capabilities. What runs is managed as usual. Default false.
   */
  readonly denyStarts?: boolean;
  /**
   * IP address on which the runtime checks that a port is free, and which endpoints report. Default
   * 127.0.0.1.
   */
  readonly address?: string;
  /** PATH of containers whose request sets no PATH. Default: the usual system directories. */
  readonly path?: string;
  /**
   * Number of log files that are kept per container, at least 2, and the size in bytes at which the
   * log is rotated. Default 4 files of 4 MiB.
   */
  readonly logFiles?: number;
  readonly logFileBytes?: number;
  /**
   * Milliseconds without a client and without a running container after which the supervisor exits.
   * Default 30 000.
   */
  readonly idleMs?: number;
  /**
   * True: `openProcessRuntime` resolves also when a supervisor runs and does not answer within 5 s.
   * The runtime then has the capabilities of this version, `listAvailable` reports that processes
   * are missing, other calls fail with kind `unavailable`, and the runtime connects as soon as the
   * supervisor answers or is replaced. Default false.
   */
  readonly acceptSilentSupervisor?: boolean;
  /**
   * Ends the wait for the supervisor in `openProcessRuntime`. No effect once the supervisor has
   * answered.
   */
  readonly signal?: AbortSignal | undefined;
}
