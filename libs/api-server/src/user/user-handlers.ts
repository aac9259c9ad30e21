import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  DeleteUserResponseSchema,
  ListUsersResponseSchema,
  Role,
  RoleGrantSchema,
  UserService,
  WhoAmIResponseSchema,
  paginate,
  type CreateUserRequest,
  type DeleteUserRequest,
  type DeleteUserResponse,
  type GrantRequest,
  type ListUsersRequest,
  type ListUsersResponse,
  type RevokeRequest,
  type RoleGrant,
  type User,
  type WhoAmIResponse,
} from '@cloudless/api';
import { UserRecordSchema, type UserRecord } from '@cloudless/api/store';
import { CloudlessError, definedFields } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import type { Principal, RoleName } from '@cloudless/identity';
import type { ApiCaller } from '../access/caller.js';
import type { AuditEntry } from '../audit/audit-log.js';
import {
  changeUsers,
  listCredentials,
  requireIdentity,
  type UserChangeDeps,
} from './user-change.js';
import {
  addGrant,
  checkRole,
  isClusterAdmin,
  presentUser,
  removeGrant,
  requireAnotherAdmin,
  requireUser,
  presentCredential,
} from './user-rules.js';

const calls = UserService.method;

/** Handlers of the calls of UserService on users and their roles. */
export class UserHandlers {
  constructor(private readonly deps: UserChangeDeps) {}

  async createUser({ name }: CreateUserRequest, entry: AuditEntry): Promise<User> {
    requireIdentity(this.deps);
    return changeUsers(this.deps, async (view, nowMs) => {
      if (view.user(name) !== undefined)
        throw new CloudlessError('USER_EXISTS', `user "${name}" exists; choose another name`);
      const record = create(UserRecordSchema, {
        user: { name, createdAt: timestampFromMs(nowMs) },
      });
      await entry.commit(
        this.deps.state.transaction().require('user', name, 'absent').put('user', name, record),
      );
      return presentUser(record, () => true);
    });
  }

  /** Lists the users that the caller may see, each with the roles that the caller may see. */
  listUsers(request: ListUsersRequest, context: HandlerContext): ListUsersResponse {
    requireIdentity(this.deps);
    const isVisible = this.createRoleFilter(this.deps.access.getCaller(context));
    const users = [...this.deps.state.view().users()]
      .map(({ value }) => presentUser(value, isVisible))
      .filter(({ grants }) => grants.length > 0 || isVisible(''))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    const { items, nextPageToken } = paginate(users, ({ name }) => name, request, {
      filter: ['users'],
    });
    return create(ListUsersResponseSchema, { users: [...items], nextPageToken });
  }

  /** Deletes a user with all credentials, which ends the open calls of the user. */
  async deleteUser({ name }: DeleteUserRequest, entry: AuditEntry): Promise<DeleteUserResponse> {
    requireIdentity(this.deps);
    return changeUsers(this.deps, async (view) => {
      const stored = requireUser(view, name);
      if (isClusterAdmin(stored.value)) requireAnotherAdmin(view, stored.value);
      const transaction = this.deps.state
        .transaction()
        .require('user', name, stored)
        .delete('user', name);
      for (const { credential } of listCredentials(view, name))
        transaction.delete('credential', credential?.id ?? '');
      await entry.commit(transaction, 'commitObserved');
      return create(DeleteUserResponseSchema);
    });
  }

  grant(request: GrantRequest, entry: AuditEntry): Promise<User> {
    return this.changeRoles(calls.grant, request, entry, (_view, record) =>
      addGrant(record, request),
    );
  }

  revoke(request: RevokeRequest, entry: AuditEntry): Promise<User> {
    return this.changeRoles(calls.revoke, request, entry, (view, record) =>
      removeGrant(view, record, request),
    );
  }

  /** Returns the identity of the caller, also in a cluster without TLS. */
  whoAmI(context: HandlerContext): WhoAmIResponse {
    const { principal, credential } = this.deps.access.getCaller(context);
    const record =
      credential?.kind === 'user' ? this.deps.state.view().credential(credential.id) : undefined;
    return create(WhoAmIResponseSchema, {
      principal: principal.name,
      grants: listGrants(principal),
      ...definedFields({ credential: record && presentCredential(record.value) }),
    });
  }

  /** @param decide - Returns the changed record; undefined when the call changes nothing. */
  private async changeRoles(
    method: typeof calls.grant | typeof calls.revoke,
    { user: name, role, namespace }: GrantRequest | RevokeRequest,
    entry: AuditEntry,
    decide: (view: ClusterView, record: UserRecord) => UserRecord | undefined,
  ): Promise<User> {
    requireIdentity(this.deps);
    checkRole(role);
    const isVisible = this.createRoleFilter(entry.caller);
    return changeUsers(this.deps, async (view) => {
      // Within the change, because the roles of the caller may have changed while the call waited.
      this.deps.access.requireNamespace(entry.caller, method, namespace);
      const stored = requireUser(view, name);
      const changed = decide(view, stored.value);
      if (changed === undefined) return presentUser(stored.value, isVisible);
      await entry.commit(
        this.deps.state.transaction().require('user', name, stored).put('user', name, changed),
        method === calls.revoke ? 'commitObserved' : 'commit',
      );
      return presentUser(changed, isVisible);
    });
  }

  /** Returns a predicate for the namespaces whose roles the caller may see. */
  private createRoleFilter(caller: ApiCaller): (namespace: string) => boolean {
    return (namespace) => this.deps.access.isPermitted(caller, calls.listUsers, namespace);
  }
}

const ROLES: Readonly<Record<RoleName, Role>> = {
  viewer: Role.VIEWER,
  operator: Role.OPERATOR,
  admin: Role.ADMIN,
};

function listGrants(principal: Principal): RoleGrant[] {
  if (principal.kind === 'anonymous-loopback')
    return [create(RoleGrantSchema, { role: Role.ADMIN })];
  if (principal.kind !== 'user') return [];
  return principal.grants.map(({ role, namespace }) =>
    create(RoleGrantSchema, { role: ROLES[role], namespace }),
  );
}
