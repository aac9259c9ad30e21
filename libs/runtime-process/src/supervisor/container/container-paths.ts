import path from 'node:path';
import type { ContainerId } from '@cloudless/base';
import type { LogStream } from '@cloudless/runtime';

/**
 * Paths in the directory of a supervisor. The client uses the same paths to read logs and to hold
 * pipes open.
 */
export const layout = {
  socket: (directory: string): string => path.join(directory, 'socket'),
  containers: (directory: string): string => path.join(directory, 'containers'),
  /** The leases of all containers, for the lease guard. */
  leases: (directory: string): string => path.join(directory, 'leases'),
  /** Named pipes that no container uses yet, and the pipes of commands. */
  fifos: (directory: string): string => path.join(directory, 'fifos'),
  container: (directory: string, containerId: ContainerId | string): string =>
    path.join(directory, 'containers', containerId),
  /** HOME of the container, and its working directory unless the request sets one. */
  work: (containerDirectory: string): string => path.join(containerDirectory, 'work'),
  log: (containerDirectory: string): string => path.join(containerDirectory, 'log'),
  /** Directory with the resolv.conf of a process that has its own. */
  resolver: (containerDirectory: string): string => path.join(containerDirectory, 'resolver'),
  /** File for the exit status, which the guard of the container writes. */
  end: (containerDirectory: string): string => path.join(containerDirectory, 'end'),
  /**
   * The launch script of the main process (`main`) or of a command. It holds the environment. The
   * script of the main process is deleted once it has begun, the script of a command when the
   * command has ended.
   */
  script: (containerDirectory: string, name: string): string =>
    path.join(containerDirectory, `${name}.sh`),
  pipe: (containerDirectory: string, stream: LogStream): string =>
    path.join(containerDirectory, `${stream}.fifo`),
} as const;
