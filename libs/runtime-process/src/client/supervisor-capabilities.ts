import { CloudlessError } from '@cloudless/base';
import { LEASES, SECRETS } from '../wire/messages.js';
import type { SupervisorConnection } from './supervisor-connection.js';

/** A connected supervisor, which may be of an earlier version than this client. */
export type ConnectedSupervisor = Pick<SupervisorConnection, 'hello'>;

/** Returns true when the supervisor has a capability. */
export function hasCapability({ hello }: ConnectedSupervisor, capability: string): boolean {
  return hello.capabilities?.includes(capability) === true;
}

/**
 * Describes a missing capability and what helps, for an error.
 * @param needs - What the capability needs on the machine, as `Linux with sh`. Default: nothing.
 */
export function describeMissingCapability(
  { hello }: ConnectedSupervisor,
  capability: string,
  needs?: string,
): string {
  const { pid, version } = hello;
  return (
    `the running supervisor (process ${pid}, version ${version}) lacks the capability ${capability}` +
    (needs === undefined ? '' : `, which needs ${needs}`) +
    '; a supervisor of an earlier version is replaced when its last container is removed'
  );
}

/** @throws kind `unimplemented` when the supervisor does not support leases. */
export function requireLeases(supervisor: ConnectedSupervisor): void {
  if (hasCapability(supervisor, LEASES)) return;
  const needs = 'Linux with sh, setsid, env, sleep and grep';
  const problem = describeMissingCapability(supervisor, LEASES, needs);
  throw new CloudlessError('unimplemented', `lease: ${problem}`);
}

/**
 * @param field - The requested field, for the error.
 * @throws kind `unimplemented` when the supervisor would write confidential variables to disk, or
 *   cannot send signals.
 */
export function requireSecrets(supervisor: ConnectedSupervisor, field: string): void {
  if (hasCapability(supervisor, SECRETS)) return;
  const problem = describeMissingCapability(supervisor, SECRETS);
  throw new CloudlessError('unimplemented', `${field}: ${problem}`);
}
