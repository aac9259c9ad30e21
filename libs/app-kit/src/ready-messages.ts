/**
 * Message of the log line that a program writes once when it serves. A parent process waits for
 * this line; its fields name the addresses of the program.
 */
export const READY_MESSAGES = {
  coordinator: 'coordinator ready',
  agent: 'agent started, connecting to coordinators',
} as const;
