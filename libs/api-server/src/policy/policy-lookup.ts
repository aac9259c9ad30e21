import { create } from '@bufbuild/protobuf';
import { PolicySchema, PolicySpecSchema, type Policy, type PolicySpec } from '@cloudless/api';
import type { PolicyRecord } from '@cloudless/api/store';
import { CloudlessError, definedFields } from '@cloudless/base';
import type { ClusterView, Stored } from '@cloudless/cluster-state';
import { checkGeneration } from '../generation.js';

/** Stands for every namespace in a policy. */
export const EVERY_NAMESPACE = '*';

/**
 * Returns a policy by its name.
 * @throws kind `notFound` when there is no such policy.
 */
export function requirePolicy(view: ClusterView, name: string): Stored<PolicyRecord> {
  const policy = view.policy(name);
  if (policy !== undefined) return policy;
  throw createNotFoundError(name);
}

/** Creates the error for a policy that does not exist, or that the caller may not see. */
export function createNotFoundError(name: string): CloudlessError {
  return new CloudlessError('notFound', `policy "${name}" not found`);
}

/**
 * Returns the policy that a request changes.
 * @throws the errors of {@link requirePolicy}; kind `conflict` when its generation is not the
 *   expected one.
 */
export function requireExpectedPolicy(
  view: ClusterView,
  {
    name,
    expectedGeneration,
  }: { readonly name: string; readonly expectedGeneration?: bigint | undefined },
): Stored<PolicyRecord> {
  const policy = requirePolicy(view, name);
  const { generation } = policy.value;
  checkGeneration({ kind: 'policy', name, generation }, expectedGeneration);
  return policy;
}

/** Returns the spec of a policy; an empty spec when the record has none. */
export function getPolicySpec({ spec }: { readonly spec?: PolicySpec | undefined }): PolicySpec {
  return spec ?? create(PolicySpecSchema);
}

/** Builds the API message of a policy from its record. */
export function presentPolicy(record: PolicyRecord): Policy {
  const { name, uid, generation, createdAt } = record;
  return create(PolicySchema, {
    ...{ name, uid, generation },
    spec: getPolicySpec(record),
    ...definedFields({ createdAt }),
  });
}
