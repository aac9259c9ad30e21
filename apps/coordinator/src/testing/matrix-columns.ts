import type { DescMethod } from '@bufbuild/protobuf';
import type { RoleName } from '@cloudless/identity';
import { getAccessRule } from '@cloudless/identity/authorization';
import { getMatrixRow } from './matrix-requests.js';

/** What a principal with valid credentials is, and how its calls relate to it. */
export type MatrixColumn =
  | { readonly kind: 'unauthenticated' }
  | { readonly kind: 'user'; readonly role?: RoleName; readonly place: UserPlace }
  | { readonly kind: 'node'; readonly place: 'itself' | 'other' }
  /** A workload, with its certificate. */
  | { readonly kind: 'workload' };

/**
 * `none`: a user without roles. `inside`: the role in the namespace of the object. `outside`: the
 * role in another namespace, or a call about another user. `cluster`: the role in the whole cluster.
 */
export type UserPlace = 'none' | 'inside' | 'outside' | 'cluster';

const ROLES: readonly RoleName[] = ['viewer', 'operator', 'admin'];

/** All principals with valid credentials, in the order of the document. */
export const MATRIX_COLUMNS: readonly MatrixColumn[] = [
  { kind: 'unauthenticated' },
  { kind: 'user', place: 'none' },
  ...(['outside', 'inside', 'cluster'] as const).flatMap((place) =>
    ROLES.map((role) => ({ kind: 'user', role, place }) as const),
  ),
  { kind: 'node', place: 'itself' },
  { kind: 'node', place: 'other' },
  { kind: 'workload' },
];

/**
 * Returns whether the access table permits the call of a principal with valid credentials.
 * @param hasAccessToken - The request has a valid access token.
 */
export function isPermitted(
  method: DescMethod,
  column: MatrixColumn,
  hasAccessToken = getAccessRule(method)?.accessToken === 'always',
): boolean {
  const rule = getAccessRule(method);
  if (rule === undefined) return false;
  if (rule.unauthenticated === true) return true;
  if (column.kind === 'unauthenticated') return false;
  if (rule.accessToken !== undefined && hasAccessToken) return column.kind !== 'node';
  if (column.kind === 'workload') return false;
  if (rule.authenticated === true) return true;
  if (column.kind === 'node') {
    // The first frame of a tunnel names no node. Its id is accepted only from the right node.
    return rule.node !== undefined && (column.place === 'itself' || method.name === 'Tunnel');
  }
  const { user } = rule;
  if (user === undefined) return false;
  const { isSelf, isUnscopedList } = getMatrixRow(method);
  const hasRole =
    column.role !== undefined && ROLES.indexOf(column.role) >= ROLES.indexOf(user.role);
  switch (user.scope) {
    case 'self':
      return isSelf === true || column.place === 'inside' || column.place === 'none'
        ? true
        : column.place === 'cluster' && hasRole;
    case 'cluster':
      return column.place === 'cluster' && hasRole;
    case 'namespace':
      return column.place !== 'outside' && hasRole;
    case 'filtered':
      return hasRole && (column.place !== 'outside' || isUnscopedList === true);
  }
}

/** Describes a principal for titles. */
export function describeColumn(column: MatrixColumn): string {
  switch (column.kind) {
    case 'unauthenticated':
      return 'no identity';
    case 'user':
      return column.role === undefined
        ? 'a user without roles'
        : `${column.role} ${{ none: '', inside: 'inside', outside: 'outside', cluster: 'of the cluster' }[column.place]}`;
    case 'node':
      return column.place === 'itself' ? 'a node for itself' : 'a node for another node';
    case 'workload':
      return 'a workload';
  }
}
