import { assertNever } from '@cloudless/base';
import { hasRole, type Principal, type RoleName } from '../principal.js';
import type { AccessRule, UserRule } from './access-rule.js';

/** Result of {@link checkCall}. The message is meant for the client. */
export type AccessDecision =
  | { readonly allowed: true }
  | {
      readonly allowed: false;
      /** `unauthenticated`: other credentials are needed; `denied`: more rights are needed. */
      readonly code: 'unauthenticated' | 'denied';
      readonly message: string;
      /** The role that a user needs. Absent when no role would help. */
      readonly role?: RoleName;
      /** Empty: the role is needed in the whole cluster. Absent: in some namespace. */
      readonly namespace?: '';
    };

/**
 * Decides whether a principal may call an RPC at all, without the request: for some namespace, node
 * or user. The handler checks the object of the call. Denies whatever no rule permits.
 * @param rule - Undefined for an unknown RPC.
 */
export function checkCall(rule: AccessRule | undefined, principal: Principal): AccessDecision {
  if (rule === undefined) return deny('no client may make this call');
  if (rule.unauthenticated === true) return ALLOWED;
  switch (principal.kind) {
    case 'anonymous-loopback':
      return ALLOWED;
    case 'unauthenticated':
      return refuse(
        'the call has no identity; log in with "cloudlessctl login", or send a bearer token',
      );
    case 'expired-node':
      return rule.expiredNode === true
        ? ALLOWED
        : refuse(
            `the certificate of ${principal.name} expired at ${new Date(principal.expiredAtMs).toISOString()}; only its renewal is possible`,
          );
    case 'node':
      return rule.node !== undefined || rule.authenticated === true
        ? ALLOWED
        : deny(`${principal.name} may not make this call: the call is not for nodes`);
    case 'user':
      return checkUser(rule, principal);
    case 'controller':
      return rule.controller === true
        ? ALLOWED
        : deny(`${principal.name} may not make this call: the call is not for coordinators`);
    case 'workload':
    case 'service':
      return rule.accessToken !== undefined
        ? ALLOWED
        : deny(`${principal.name} may not make this call: the call is not for ${principal.kind}s`);
    default:
      return assertNever(principal);
  }
}

const ALLOWED: AccessDecision = { allowed: true };

function checkUser(
  { authenticated, user, accessToken }: AccessRule,
  principal: Extract<Principal, { kind: 'user' }>,
): AccessDecision {
  if (authenticated === true || accessToken !== undefined) return ALLOWED;
  if (user === undefined)
    return deny(`${principal.name} may not make this call: the call is not for users`);
  if (isSatisfiable(user, principal)) return ALLOWED;
  const where = user.scope === 'cluster' ? 'in the whole cluster' : 'in any namespace';
  return {
    ...deny(
      `${principal.name} does not have the role ${user.role} ${where}; ask an administrator for the role`,
    ),
    role: user.role,
    ...(user.scope === 'namespace' || user.scope === 'filtered' ? {} : { namespace: '' }),
  };
}

/** Returns true when the principal may make the call for some object. */
function isSatisfiable({ role, scope }: UserRule, principal: Principal): boolean {
  switch (scope) {
    case 'self':
      return true;
    case 'cluster':
      return hasRole(principal, role, '');
    case 'namespace':
    case 'filtered':
      return (
        principal.kind === 'user' &&
        principal.grants.some(({ namespace }) => hasRole(principal, role, namespace))
      );
    default:
      return assertNever(scope);
  }
}

const deny = (message: string) => ({ allowed: false, code: 'denied', message }) as const;
const refuse = (message: string) => ({ allowed: false, code: 'unauthenticated', message }) as const;
