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

/**
 * Runs an action with a session that can call a coordinator, and closes the session.
 * @throws {@link CliFailure} for an error of a call.
 */
export async function withCallFailures<Result>(
  local: LocalSession,
  action: (session: CliSession) => Promise<Result>,
): Promise<Result> {
  const session = await openSession(local);
  try {
    return await action(session);
  } catch (reason) {
    throw await describeFailure(reason, session.settings);
  } finally {
    session.close();
  }
}

/** Converts the error of a call to a failure with its own exit code; returns other errors as is. */
export async function describeFailure(reason: unknown, settings: Settings): Promise<unknown> {
  const { describeCallFailure, isCallError } = await import('./call-failure.js');
  return isCallError(reason) ? describeCallFailure(reason, settings) : reason;
}
