import { equals } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { PolicySpecSchema, type Policy } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import type { ManifestPolicy } from '../../manifest/parse-policies.js';
import { changeEach } from '../change-each.js';
import { requireFreshManifest } from '../objects/check-generation.js';
import { readPolicies } from './read-policies.js';

/** A file describes the whole policy: fields that the file leaves out get their defaults. */
const ALL_FIELDS = PolicySpecSchema.fields.map(({ name }) => name);

/** Creates the policies of files, and replaces the specs of those that exist. */
export async function applyPolicies(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const policies = await readPolicies(invocation, 'nothing was applied');
  const applied = await changeEach<ManifestPolicy, void>(session, policies, {
    describe: formatPolicyName,
    change: async (policy, requestId) => {
      const change = await applyPolicy(session, policy, requestId);
      await session.printStatus(`${formatPolicyName(policy)}: ${change}`);
    },
  });
  applied.throwFailure();
}

/** Deletes policies. */
export async function deletePolicies({ session, operands }: Invocation): Promise<void> {
  const policies = operands.map((name) => ({ name }));
  const deleted = await changeEach(session, policies, {
    describe: formatPolicyName,
    change: async ({ name }, requestId) => {
      await session.policies.deletePolicy({ name, requestId }, session.getCallOptions());
      await session.printStatus(`${formatPolicyName({ name })}: deleted`);
    },
  });
  deleted.throwFailure();
}

/**
 * Creates a policy, or replaces its spec.
 * @throws {@link CliFailure} with exit code 4 for a manifest of an older generation with another spec.
 */
async function applyPolicy(
  session: CliSession,
  { name, spec, generation }: ManifestPolicy,
  requestId: string,
): Promise<'created' | 'updated' | 'unchanged'> {
  const options = session.getCallOptions();
  const before = await findPolicy(session, name);
  if (before === undefined) {
    await session.policies.createPolicy({ name, spec, requestId }, options);
    return 'created';
  }
  if (before.spec === undefined || !equals(PolicySpecSchema, before.spec, spec))
    requireFreshManifest({
      subject: formatPolicyName({ name }),
      fetchCommand: `cloudlessctl policy get ${name} -o yaml`,
      ...{ generation, current: before.generation },
    });
  const after = await session.policies.updatePolicy(
    {
      ...{ name, spec, requestId, expectedGeneration: before.generation },
      updateMask: { paths: ALL_FIELDS },
    },
    options,
  );
  return after.generation === before.generation ? 'unchanged' : 'updated';
}

async function findPolicy(session: CliSession, name: string): Promise<Policy | undefined> {
  try {
    return await session.policies.getPolicy({ name }, session.getCallOptions());
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.NotFound) return undefined;
    throw reason;
  }
}

function formatPolicyName({ name }: { readonly name: string }): string {
  return `policy ${name}`;
}
