import type { DescMethod } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import { resolveNamespace } from '@cloudless/api';
import { CloudlessError, assert } from '@cloudless/base';
import type { ClusterView } from '@cloudless/cluster-state';
import { hasRole, type Principal, type RoleName } from '@cloudless/identity';
import { checkCall, getAccessRule, type UserRule } from '@cloudless/identity/authorization';
import type { ReadDeps } from '../ports.js';
import { waitForRequestedRevision } from '../roles/requested-revision.js';
import { ANONYMOUS_CALLER, toApiCaller, type ApiCaller } from './caller.js';

/** What {@link CallAccess} needs. Without `getCaller`, every call is one of this process. */
export type AccessDeps = Pick<ReadDeps, 'state' | 'getCaller' | 'identity'>;

/** Which containers, replicas and workloads a call may name. */
export interface TargetPermission {
  /** Returns true when the caller may name objects of the namespace. */
  isPermitted(namespace: string): boolean;
  /** @throws kind `denied`; also in later checks of an open call. */
  requireNamespace(namespace: string): void;
}

/**
 * Returns the namespace of a replica. Empty for a replica whose workload was deleted: only roles in
 * the whole cluster cover such a replica.
 */
export function getReplicaNamespace(view: ClusterView, { uid }: { readonly uid: string }): string {
  const workload = view.workload(uid)?.value;
  return workload === undefined ? '' : resolveNamespace(workload);
}

/**
 * Checks the objects of calls: the part of the access table that only the request shows. Requirements
 * of open streams are checked again when roles change.
 */
export class CallAccess {
  constructor(private readonly deps: AccessDeps) {
    assert(
      deps.identity === undefined || deps.getCaller !== undefined,
      'a cluster with identities needs getCaller',
    );
  }

  /** Returns the client of a call. */
  getCaller(context: HandlerContext): ApiCaller {
    const { getCaller, identity } = this.deps;
    const caller = getCaller?.(context);
    if (caller !== undefined) return toApiCaller(caller);
    if (identity === undefined) return ANONYMOUS_CALLER;
    throw new CloudlessError('unauthenticated', 'the call has no identity');
  }

  /**
   * Returns true when a user calls with a certificate of an older generation of the certificate
   * authority than the generation that issues now: the user should renew the certificate.
   */
  hasOldCertificate({ credential }: ApiCaller): boolean {
    if (credential?.kind !== 'user' || credential.serial === undefined) return false;
    const view = this.deps.state.view();
    const issuing = view.certificateAuthority()?.value.issuingGeneration ?? 0;
    const current = view.credential(credential.id)?.value.current;
    return current !== undefined && current.generation < issuing;
  }

  /**
   * Checks that the caller may make calls of this kind at all.
   * @throws kind `denied` or `unauthenticated`.
   */
  requireCall(caller: ApiCaller, method: DescMethod): void {
    caller.require(() => {
      const decision = checkCall(getAccessRule(method), caller.principal);
      if (decision.allowed) return;
      if (decision.code === 'unauthenticated')
        throw new CloudlessError('unauthenticated', decision.message);
      throw createDeniedError(caller.principal, method, decision);
    });
  }

  /**
   * Checks that the caller has the role of the call in a namespace, also as long as the call is open.
   * @param namespace - Empty: in the whole cluster.
   * @throws kind `denied`.
   */
  requireNamespace(caller: ApiCaller, method: DescMethod, namespace: string): void {
    caller.require(() => {
      if (this.isPermitted(caller, method, namespace)) return;
      throw createMissingRoleError(caller.principal, method, namespace);
    });
  }

  /**
   * Returns true when the caller has the role that a call needs in a namespace.
   * @param namespace - Empty: in the whole cluster.
   */
  isPermitted(caller: ApiCaller, method: DescMethod, namespace: string): boolean {
    const { principal } = caller;
    if (principal.kind === 'anonymous-loopback') return true;
    return hasRole(principal, requireUserRule(method).role, namespace);
  }

  /**
   * Prepares a list or a watch over namespaces.
   * @param namespace - The namespace in the request. Empty: all namespaces.
   * @returns A predicate for namespaces whose objects the caller gets. Empty in its argument: objects
   *   that belong to no namespace.
   * @throws kind `denied` when the request names a namespace in which the caller has no such role;
   *   in later checks kind `compacted` when the roles have changed, because the client then has
   *   objects that it must no longer have, or lacks some.
   */
  createFilter(
    caller: ApiCaller,
    method: DescMethod,
    namespace: string,
  ): (namespace: string) => boolean {
    if (namespace !== '') this.requireNamespace(caller, method, namespace);
    const before = describeGrants(caller.principal);
    caller.require(() => {
      if (describeGrants(caller.principal) === before) return;
      throw new CloudlessError(
        'compacted',
        `the roles of ${caller.principal.name} have changed; start again from the beginning`,
      );
    });
    return (candidate) => this.isPermitted(caller, method, candidate);
  }

  /**
   * Waits until the view is as new as a read asks for.
   * @returns Undefined when the view is new enough, and for calls that ask for nothing.
   */
  waitForRequestedRevision(request: unknown, signal: AbortSignal): Promise<void> | undefined {
    return waitForRequestedRevision(this.deps.state, request, signal);
  }

  /**
   * Checks that a node acts for itself.
   * @throws kind `denied`.
   */
  requireNode(caller: ApiCaller, nodeId: string): void {
    caller.require(() => {
      if (this.isNode(caller, nodeId)) return;
      throw new CloudlessError(
        'denied',
        `${caller.principal.name} may not act for node "${nodeId}"`,
        { metadata: { principal: caller.principal.name } },
      );
    });
  }

  /** Returns true when the caller is this node, or may act as any node. */
  isNode({ principal }: ApiCaller, nodeId: string): boolean {
    return (
      principal.kind === 'anonymous-loopback' ||
      ((principal.kind === 'node' || principal.kind === 'expired-node') &&
        principal.nodeId === nodeId)
    );
  }

  /**
   * Checks that a user acts on its own credentials, or is admin of the whole cluster.
   * @throws kind `denied`.
   */
  requireSelf(caller: ApiCaller, method: DescMethod, userName: string): void {
    const { principal } = caller;
    if (principal.kind === 'user' && principal.userName === userName) return;
    this.requireNamespace(caller, method, '');
  }

  /**
   * Returns the permission of a call that names a container, a replica or a workload.
   * @param context - Context of the call.
   */
  createTargetPermission(context: HandlerContext, method: DescMethod): TargetPermission {
    const caller = this.getCaller(context);
    return {
      isPermitted: (namespace) => this.isPermitted(caller, method, namespace),
      requireNamespace: (namespace) => this.requireNamespace(caller, method, namespace),
    };
  }
}

function requireUserRule(method: DescMethod): UserRule {
  const rule = getAccessRule(method)?.user;
  if (rule !== undefined) return rule;
  throw new CloudlessError('denied', `${method.name} is not a call of users`);
}

function describeGrants(principal: Principal): string {
  return principal.kind === 'user' ? JSON.stringify(principal.grants) : principal.kind;
}

function createMissingRoleError(
  principal: Principal,
  method: DescMethod,
  namespace: string,
): CloudlessError {
  const { role } = requireUserRule(method);
  if (principal.kind !== 'user')
    return createDeniedError(principal, method, {
      message: `${principal.name} may make this call only with an access token; send the token in access_token`,
    });
  const where = namespace === '' ? 'in the whole cluster' : `in namespace "${namespace}"`;
  return createDeniedError(principal, method, {
    message: `${principal.name} does not have the role ${role} ${where}; ask an administrator for the role`,
    role,
    namespace,
  });
}

/**
 * Creates the error for a missing role, with metadata from which clients build advice: without
 * `namespace`, the role is needed in some namespace.
 */
export function createDeniedError(
  principal: Principal,
  method: DescMethod,
  {
    message,
    role,
    namespace,
  }: {
    readonly message: string;
    readonly role?: RoleName | undefined;
    readonly namespace?: string | undefined;
  },
): CloudlessError {
  return new CloudlessError('denied', message, {
    metadata: {
      principal: principal.name,
      rpc: method.name,
      ...(role === undefined ? {} : { role }),
      ...(role === undefined || namespace === undefined ? {} : { namespace }),
    },
  });
}
