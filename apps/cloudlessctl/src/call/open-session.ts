import type { Settings } from '../config/settings.js';
import type { CliSession } from './cli-session.js';
import type { LocalSession } from './local-session.js';

/**
 * Loads the clients and the schema of the API, and returns a session that can call a coordinator.
 * Connects with the first call. The caller closes the session.
 */
export async function openSession({ io, settings, style }: LocalSession): Promise<CliSession> {
  const { CliSession } = await import('./cli-session.js');
  return new CliSession(io, settings, style);
}

/** Converts the error of a call to a failure with its own exit code; returns other errors as is. */
export async function describeFailure(reason: unknown, settings: Settings): Promise<unknown> {
  const { describeCallFailure, isCallError } = await import('./call-failure.js');
  return isCallError(reason) ? describeCallFailure(reason, settings) : reason;
}
