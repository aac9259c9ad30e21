/**
 * Message of the log line that a program writes once when it serves. A parent process waits for
 * this line; its fields name the addresses of the program.
 */
export const READY_MESSAGES = {
  coordinator: 'coordinator ready',
  agent: 'agent started, connecting to coordinators',
} as const;

/** Message of the log line that an agent writes when a coordinator has accepted its session. */
export const SESSION_MESSAGE = 'session established';
