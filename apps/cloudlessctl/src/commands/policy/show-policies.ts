import { create } from '@bufbuild/protobuf';
import { PolicySchema, PolicySpecSchema, type Policy } from '@cloudless/api';
import { toMessageJson } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import { printPolicyManifests } from '../../manifest/print-manifest.js';
import { formatPolicyTable } from '../../views/policy-view.js';
import { printObjects, type ObjectKind } from '../general/list-objects.js';
import { hasFlag } from '../options.js';
import { listAllPages } from '../page.js';

/** Names, fields and columns of policies in lists. */
const POLICY_KIND: ObjectKind<Policy> = {
  plural: 'policies',
  fields: PolicySchema.fields.map(({ jsonName }) => jsonName),
  toJson: (policy) => toMessageJson(PolicySchema, policy),
  formatTable: (policies, { nowMs, style }) => formatPolicyTable(policies, nowMs, style),
  formatManifests: (policies) =>
    printPolicyManifests(
      policies.map(({ name, spec }) => ({ name, spec: spec ?? create(PolicySpecSchema) })),
    ),
};

/** Lists the policies that judge a namespace, or all with `--all-namespaces`. */
export async function listPolicies(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const namespace = hasFlag(invocation, 'allNamespaces') ? '' : session.settings.namespace;
  const policies = await listAllPages(
    (page) => session.policies.listPolicies({ namespace, ...page }, session.getCallOptions()),
    (page) => page.policies,
  );
  const place = namespace === '' ? '' : ` for namespace ${namespace}`;
  const hint = `no policies${place}; create some with: cloudlessctl policy apply -f FILE`;
  await printObjects(invocation, POLICY_KIND, policies, hint);
}

/** Shows policies by name. */
export async function getPolicies(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const policies: Policy[] = [];
  for (const name of operands)
    policies.push(await session.policies.getPolicy({ name }, session.getCallOptions()));
  await printObjects(invocation, POLICY_KIND, policies, 'no policies', {
    single: operands.length === 1,
  });
}
