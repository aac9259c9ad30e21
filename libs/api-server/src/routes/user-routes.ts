import type { ServiceImpl } from '@connectrpc/connect';
import { UserService } from '@cloudless/api';
import { ROLE_NAMES } from '../access/role-names.js';
import type { CredentialHandlers } from '../user/credential-handlers.js';
import type { UserHandlers } from '../user/user-handlers.js';
import type { RequestedGrant } from '../user/user-rules.js';
import type { CallRoutes } from './call-routes.js';
import type { ReadRoutes } from './read-routes.js';

const calls = UserService.method;

/** Creates the implementation of UserService. */
export function createUserRoutes(
  routes: CallRoutes,
  {
    users,
    credentials,
    reads,
  }: {
    readonly users: UserHandlers;
    readonly credentials: CredentialHandlers;
    readonly reads: ReadRoutes['user'];
  },
): ServiceImpl<typeof UserService> {
  return {
    createUser: routes.change(
      calls.createUser,
      (request, entry) => users.createUser(request, entry),
      ({ name }) => ({ object: `user ${name}` }),
    ),
    deleteUser: routes.change(
      calls.deleteUser,
      (request, entry) => users.deleteUser(request, entry),
      ({ name }) => ({ object: `user ${name}` }),
    ),
    grant: routes.change(
      calls.grant,
      (request, entry) => users.grant(request, entry),
      describeGrant,
    ),
    revoke: routes.change(
      calls.revoke,
      (request, entry) => users.revoke(request, entry),
      describeGrant,
    ),
    createUserToken: routes.change(
      calls.createUserToken,
      (request, entry) => credentials.createUserToken(request, entry),
      ({ user }) => describeOwner(user),
    ),
    revokeUserToken: routes.change(
      calls.revokeUserToken,
      (request, entry) => credentials.revokeUserToken(request, entry),
      ({ id, user }) => ({ object: `credential ${id}${user === '' ? '' : ` of user ${user}`}` }),
    ),
    issueUserCertificate: routes.change(
      calls.issueUserCertificate,
      (request, entry) => credentials.issueUserCertificate(request, entry),
      () => ({}),
    ),
    ...reads,
  };
}

function describeOwner(user: string) {
  return user === '' ? {} : { object: `user ${user}` };
}

function describeGrant({ user, role, namespace }: RequestedGrant & { readonly user: string }) {
  const where = namespace === '' ? 'the whole cluster' : `namespace ${namespace}`;
  return {
    object: `user ${user}, role ${ROLE_NAMES[role] ?? 'unspecified'} in ${where}`,
    ...(namespace === '' ? {} : { namespace }),
  };
}
