import type { DescMethod } from '@bufbuild/protobuf';
import type { CredentialRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import type { CallAccess } from '../access/call-access.js';
import type { ApiCaller } from '../access/caller.js';
import type { IdentityPort } from '../access/identity-port.js';
import type { KeyedMutex } from '../mutation/keyed-mutex.js';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import type { ApiServerDeps } from '../ports.js';

export type UserChangeDeps = Pick<
  ApiServerDeps,
  'state' | 'clock' | 'random' | 'identity' | 'replaceCredential'
> & {
  readonly access: CallAccess;
  readonly mutex: KeyedMutex;
};

/**
 * Returns the identities of the cluster.
 * @throws kind `precondition` in a cluster without TLS.
 */
export function requireIdentity({ identity }: Pick<ApiServerDeps, 'identity'>): IdentityPort {
  if (identity !== undefined) return identity;
  throw new CloudlessError(
    'NO_IDENTITIES',
    'this cluster has no identities; start the coordinator with --tls on',
  );
}

/**
 * Runs a change of users or credentials. All such changes run one at a time, because whether a user
 * is the last admin depends on all users.
 */
export function changeUsers<Result>(
  deps: UserChangeDeps,
  attempt: (view: ClusterView, nowMs: number) => Promise<Result>,
): Promise<Result> {
  const subject = 'the list of users';
  return deps.mutex.run(subject, () =>
    retryOnConflict({ ...deps, subject }, () => attempt(deps.state.view(), deps.clock.wallTime())),
  );
}

/**
 * Returns the name of the user that a call about credentials is about, after checking that the
 * caller may act on the credentials of this user.
 * @param name - Empty: the caller.
 * @throws kind `denied`; `invalid` when the caller is no user and names none.
 */
export function resolveUser(
  access: CallAccess,
  caller: ApiCaller,
  method: DescMethod,
  name: string,
): string {
  const { principal } = caller;
  const userName = name === '' && principal.kind === 'user' ? principal.userName : name;
  if (userName === '')
    throw new InvalidInputError([{ field: 'user', message: 'is required: the caller is no user' }]);
  access.requireSelf(caller, method, userName);
  return userName;
}

/** Returns the credentials of a user, in any order. */
export function listCredentials(view: ClusterView, userName: string): readonly CredentialRecord[] {
  return [...view.credentials()]
    .map(({ value }) => value)
    .filter(({ credential }) => credential?.user === userName);
}
