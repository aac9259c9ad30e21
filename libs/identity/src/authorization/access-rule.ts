import type { RoleName } from '../principal.js';

/**
 * Which principals may make the calls of one RPC. Every field adds principals; a rule without
 * fields permits no caller. `anonymous@loopback`, the principal of every call in a cluster without
 * TLS, may make every call that has a rule.
 */
export interface AccessRule {
  /** Every client, also one without credentials. Invalid credentials are refused all the same. */
  readonly unauthenticated?: true;
  /** Every user and every node. */
  readonly authenticated?: true;
  /**
   * Nodes. `self`: a node acts only for itself. `assigned`: in addition, only for replicas that are
   * assigned to the node.
   */
  readonly node?: 'self' | 'assigned';
  /** Also a node whose certificate has expired, for itself. */
  readonly expiredNode?: true;
  /** Coordinators. */
  readonly controller?: true;
  readonly user?: UserRule;
  /**
   * Every user, workload and service, when the request has an access token of a secret, which is then
   * the credential of the call. `always`: each request has one. `optional`: a request without an access
   * token is for users with the role in `user`. The handler checks the token.
   */
  readonly accessToken?: 'always' | 'optional';
}

/** What a user needs for a call. */
export interface UserRule {
  readonly role: RoleName;
  /**
   * - `namespace`: the role in the namespace of the object; in each of the namespaces when the call
   *   is about several objects.
   * - `cluster`: the role in the whole cluster.
   * - `filtered`: the role in some namespace; the result contains only objects of namespaces in
   *   which the user has the role.
   * - `self`: no role for the credentials of the user; the role in the whole cluster for the
   *   credentials of another user.
   */
  readonly scope: 'namespace' | 'cluster' | 'filtered' | 'self';
}
