import { CloudlessError } from '@cloudless/base';
import { LEASES, SECRETS } from '../wire/messages.js';
import type { SupervisorConnection } from './supervisor-connection.js';

/** @throws kind `unimplemented` when the supervisor does not support leases. */
export function requireLeases({ hello }: Pick<SupervisorConnection, 'hello'>): void {
  if (hello.capabilities?.includes(LEASES) === true) return;
  throw new CloudlessError(
    'unimplemented',
    `lease: the running supervisor (process ${hello.pid}, version ${hello.version}) lacks the capability ${LEASES}, which needs ` +
      'Linux with sh, setsid, env, sleep and grep; a supervisor of an earlier version is replaced when its last container is removed',
  );
}

/** @throws kind `unimplemented` when the supervisor would write confidential variables to disk. */
export function requireSecrets(
  { hello }: Pick<SupervisorConnection, 'hello'>,
  field: string,
): void {
  if (hello.capabilities?.includes(SECRETS) === true) return;
  throw new CloudlessError(
    'unimplemented',
    `${field}: the running supervisor (process ${hello.pid}, version ${hello.version}) lacks the capability ${SECRETS}; a ` +
      'supervisor of an earlier version is replaced when its last container is removed',
  );
}
