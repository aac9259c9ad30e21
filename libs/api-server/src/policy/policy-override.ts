import type { DescMethod } from '@bufbuild/protobuf';
import type { PlannedChange, PolicyOverride } from '@cloudless/api';
import { hasRole } from '@cloudless/identity';
import { createDeniedError } from '../access/call-access.js';
import type { ApiCaller } from '../access/caller.js';

/** The part of a call that admission needs. */
export interface JudgedCall {
  readonly requestId: string;
  /** The reason for which the caller overrides policies. Undefined: policies decide. */
  readonly overrideReason?: string | undefined;
}

/** A request that may override policies. */
interface OverridingRequest {
  readonly requestId: string;
  readonly policyOverride?: PolicyOverride | undefined;
}

/**
 * Reads the override of a request.
 * @throws kind `denied` when the request has an override and the caller is not admin of the whole
 *   cluster, also when no policy denies the change.
 */
export function readJudgedCall(
  caller: ApiCaller,
  method: DescMethod,
  { requestId, policyOverride }: OverridingRequest,
): JudgedCall {
  if (policyOverride === undefined) return { requestId };
  requireOverridePermission(caller, method);
  return { requestId, overrideReason: policyOverride.reason };
}

/**
 * Checks that a caller may override policies.
 * @throws kind `denied`.
 */
export function requireOverridePermission(caller: ApiCaller, method: DescMethod): void {
  caller.require(() => {
    const { principal } = caller;
    if (principal.kind === 'anonymous-loopback' || hasRole(principal, 'admin', '')) return;
    throw createDeniedError(principal, method, {
      message: `${principal.name} may not override policies: only a user with the role admin in the whole cluster may; remove policy_override, or ask such a user to make the change`,
      ...{ role: 'admin', namespace: '' },
    });
  });
}

/**
 * Returns the reason with which the request of a planned change overrides policies. Undefined: policies
 * decide.
 */
export function getOverrideOfChange({ change: { value } }: PlannedChange): string | undefined {
  return value !== undefined && 'policyOverride' in value
    ? value.policyOverride?.reason
    : undefined;
}
