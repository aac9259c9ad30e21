import { firstServer } from '../config/server-list.js';
import type { Settings } from '../config/settings.js';
import { createUsageFailure } from './failure.js';
import type { CliSession } from './cli-session.js';
import type { LocalSession } from './local-session.js';

/**
 * Loads the clients and the schema of the API, and returns a session that can call a coordinator.
 * Connects with the first call. The caller closes the session.
 */
export async function openSession({ io, settings, style }: LocalSession): Promise<CliSession> {
  const { CliSession } = await import('./cli-session.js');
  // The code for identities and TLS is loaded only for a server that needs it.
  if (!settings.server.startsWith('https:')) {
    requireNoToken(settings);
    return new CliSession(io, settings, style);
  }
  const { loadAccess } = await import('../identity/load-access.js');
  const { access, createRenewal } = await loadAccess(io, settings);
  return new CliSession(io, settings, style, access, createRenewal);
}

/**
 * Refuses to send a token in plaintext. The identity of a context is not used for such a server.
 * @throws {@link CliFailure} with exit code 2.
 */
function requireNoToken({ server, credentials: { source } }: Settings): void {
  if (source === undefined || source.kind === 'identity') return;
  throw createUsageFailure(
    `${source.origin}: a token is sent only over https, and the server is ${server}; use https:// for a cluster with TLS, and no token for a cluster without`,
  );
}

/**
 * Runs an action with a session that can call a coordinator, and closes the session.
 * @throws {@link CliFailure} for an error of a call.
 */
export async function withCallFailures<Result>(
  local: LocalSession,
  action: (session: CliSession) => Promise<Result>,
): Promise<Result> {
  return runWithSession(await openSession(local), action);
}

/**
 * Runs an action with a session, and closes the session.
 * @throws {@link CliFailure} for an error of a call.
 */
export async function runWithSession<Result>(
  session: CliSession,
  action: (session: CliSession) => Promise<Result>,
): Promise<Result> {
  try {
    return await action(session);
  } catch (reason) {
    throw await describeFailure(reason, session);
  } finally {
    await session.close();
  }
}

/** Converts the error of a call to a failure with its own exit code; returns other errors as is. */
export async function describeFailure(
  reason: unknown,
  { io, settings, nowMs }: LocalSession,
): Promise<unknown> {
  const { describeCallFailure, describeTlsServer, isCallError, isClosedByServer } =
    await import('./call-failure.js');
  if (!isCallError(reason)) return reason;
  // A server with TLS closes a plaintext connection without an answer.
  const isTlsServer =
    settings.server.startsWith('http:') &&
    isClosedByServer(reason) &&
    (await io.detectTls(firstServer(settings.server)));
  return isTlsServer
    ? describeTlsServer(reason, settings)
    : describeCallFailure(reason, settings, nowMs);
}
