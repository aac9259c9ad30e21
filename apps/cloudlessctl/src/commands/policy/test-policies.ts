import {
  PolicyVerdictSchema,
  PolicyVerdict_Decision as Decision,
  type PolicyVerdict,
} from '@cloudless/api';
import { toMessageJson, type CliSession } from '../../call/cli-session.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import type { ManifestPolicy } from '../../manifest/parse-policies.js';
import { parseWorkloadName, type WorkloadName } from '../../names.js';
import { formatCount } from '../../output/human.js';
import { formatVerdict, formatViolationTable } from '../../views/policy-view.js';
import { hasFlag, requireOperand } from '../options.js';
import { listAllPages } from '../page.js';
import { readPolicies } from './read-policies.js';

/**
 * Shows what the policies of files would decide about a stored workload, or about all of them.
 * @throws {@link CliFailure} with exit code 4 when a workload is denied.
 */
export async function testPolicies(invocation: Invocation): Promise<void> {
  const { session, operands } = invocation;
  const candidates = await readPolicies(invocation, 'nothing was tested');
  const [text] = operands;
  if (text !== undefined && hasFlag(invocation, 'allNamespaces'))
    throw createUsageFailure('--all-namespaces is for a test without a name of a workload');
  const verdicts =
    text === undefined
      ? await listViolations(invocation, candidates)
      : await judge(session, parseWorkloadName(text, session.settings.namespace), candidates);
  await (text === undefined
    ? printViolations(session, verdicts)
    : printVerdicts(session, verdicts));
  const denied = verdicts.filter(({ decision }) => decision === Decision.DENY).length;
  if (denied === 0) return;
  const message = `the policies would deny ${formatCount(denied, 'workload')}`;
  throw new CliFailure(ExitCode.conflict, message);
}

/** Shows the violations of stored workloads by stored policies. */
export async function reportPolicies(invocation: Invocation): Promise<void> {
  await printViolations(invocation.session, await listViolations(invocation, []));
}

/** Shows what stored policies decide about a stored workload, and why. */
export async function explainPolicies(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name of the workload');
  const name = parseWorkloadName(text, session.settings.namespace);
  await printVerdicts(session, await judge(session, name, []));
}

async function judge(
  session: CliSession,
  { namespace, name }: WorkloadName,
  candidates: readonly ManifestPolicy[],
): Promise<readonly PolicyVerdict[]> {
  const request = { namespace, name, candidates: [...candidates] };
  const { verdicts } = await session.policies.testPolicy(request, session.getCallOptions());
  return verdicts;
}

function listViolations(
  invocation: Invocation,
  candidates: readonly ManifestPolicy[],
): Promise<readonly PolicyVerdict[]> {
  const { session } = invocation;
  const namespace = hasFlag(invocation, 'allNamespaces') ? '' : session.settings.namespace;
  const request = { namespace, candidates: [...candidates], violationsOnly: true };
  return listAllPages(
    (page) => session.policies.testPolicy({ ...request, ...page }, session.getCallOptions()),
    (page) => page.verdicts,
  );
}

async function printVerdicts(
  session: CliSession,
  verdicts: readonly PolicyVerdict[],
): Promise<void> {
  if (session.isStructured) return printStructured(session, verdicts);
  for (const verdict of verdicts) await session.print(formatVerdict(verdict, session.style));
}

async function printViolations(
  session: CliSession,
  verdicts: readonly PolicyVerdict[],
): Promise<void> {
  if (session.isStructured) return printStructured(session, verdicts);
  if (verdicts.length === 0) return session.printNotice('no workload violates a policy');
  await session.print(formatViolationTable(verdicts, session.style));
}

function printStructured(session: CliSession, verdicts: readonly PolicyVerdict[]): Promise<void> {
  return session.printValue({
    verdicts: verdicts.map((verdict) => toMessageJson(PolicyVerdictSchema, verdict)),
  });
}
