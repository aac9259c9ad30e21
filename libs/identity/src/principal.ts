import { CloudlessError } from '@cloudless/base';
import { isLoopbackAddress } from './loopback.js';

/** What a user may do. Each role includes the roles before it: viewer, operator, admin. */
export type RoleName = 'viewer' | 'operator' | 'admin';

/** A role in one namespace, or in the whole cluster. */
export interface Grant {
  readonly role: RoleName;
  /** Empty: cluster-wide, which covers every namespace. */
  readonly namespace: string;
}

/** Who makes a call: the actor in limits, audit records and events. */
export type Principal =
  /** A client of a cluster without TLS. Every program on this machine may make every call. */
  | AnonymousPrincipal
  /** A client of a cluster with TLS that sent neither a certificate nor a token. */
  | { readonly kind: 'unauthenticated'; readonly name: 'unauthenticated' }
  | {
      readonly kind: 'node';
      /** `node/<id>`. */
      readonly name: string;
      readonly nodeId: string;
    }
  /** A node with an expired certificate that is otherwise valid. May only renew the certificate. */
  | {
      readonly kind: 'expired-node';
      /** `node/<id>`. */
      readonly name: string;
      readonly nodeId: string;
      readonly expiredAtMs: number;
    }
  | {
      readonly kind: 'controller';
      /** `controller/<id>`. */
      readonly name: string;
    }
  | {
      readonly kind: 'user';
      /** `user/<name>`. */
      readonly name: string;
      readonly userName: string;
      readonly grants: readonly Grant[];
    }
  | {
      readonly kind: 'workload' | 'service';
      /** `workload/<namespace>.<name>` or `service/<id>`. */
      readonly name: string;
    };

/** A client on this machine whose user and program are unknown, because the cluster has no TLS. */
export interface AnonymousPrincipal {
  readonly kind: 'anonymous-loopback';
  readonly name: 'anonymous@loopback';
}

/** The principal of every call in a cluster without TLS. */
export const ANONYMOUS_LOOPBACK: AnonymousPrincipal = {
  kind: 'anonymous-loopback',
  name: 'anonymous@loopback',
};

const ROLE_RANKS: Readonly<Record<RoleName, number>> = { viewer: 1, operator: 2, admin: 3 };

/**
 * Returns true when a principal has at least a role. Only users have roles;
 * `anonymous@loopback` counts as a cluster-wide admin.
 * @param namespace - Empty: the role is needed in the whole cluster, so a grant for one namespace is
 *   not enough. Otherwise a grant for this namespace or the whole cluster is enough.
 */
export function hasRole(principal: Principal, role: RoleName, namespace: string): boolean {
  if (principal.kind === 'anonymous-loopback') return true;
  if (principal.kind !== 'user') return false;
  return principal.grants.some(
    (grant) =>
      (grant.namespace === '' || grant.namespace === namespace) &&
      ROLE_RANKS[grant.role] >= ROLE_RANKS[role],
  );
}

/**
 * Returns the principal of a connection without TLS.
 * @param connection - The remote address as the socket reports it; IPv4 may be in its IPv6 form.
 * @throws kind `unauthenticated` when the address is not on loopback. A listener on loopback never
 *   accepts such a connection.
 */
export function getPrincipal(connection: { readonly remoteAddress: string }): AnonymousPrincipal {
  const { remoteAddress } = connection;
  if (!isLoopbackAddress(remoteAddress)) {
    throw new CloudlessError(
      'unauthenticated',
      `a call from ${remoteAddress || 'an unknown address'} carries no identity`,
    );
  }
  return ANONYMOUS_LOOPBACK;
}
