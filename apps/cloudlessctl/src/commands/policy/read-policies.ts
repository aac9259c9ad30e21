import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { Invocation } from '../../command-tree.js';
import { parsePolicies, type ManifestPolicy } from '../../manifest/parse-policies.js';
import { formatProblem } from '../../manifest/yaml-reader.js';
import { getListOption } from '../options.js';
import { readFiles } from '../workload/read-manifests.js';

/**
 * Reads the policies of all `--filename`.
 * @param consequence - First line of the message that lists problems.
 * @throws {@link CliFailure} with exit code 2: without the option, for a file that cannot be read, or
 *   with the problems of all files.
 */
export async function readPolicies(
  invocation: Invocation,
  consequence: string,
): Promise<readonly ManifestPolicy[]> {
  const paths = getListOption(invocation, 'filename');
  if (paths.length === 0) throw createUsageFailure('give the policies with -f FILE');
  const policies: ManifestPolicy[] = [];
  const problems: string[] = [];
  const declaredIn = new Map<string, string>();
  for (const { file, bytes } of await readFiles(invocation.session.io, paths)) {
    const read = parsePolicies(file, bytes);
    problems.push(...read.problems.map(formatProblem));
    for (const policy of read.policies) {
      const other = declaredIn.get(policy.name);
      if (other !== undefined)
        problems.push(`${file}: the policy ${policy.name} is already declared in ${other}`);
      declaredIn.set(policy.name, file);
      policies.push(policy);
    }
  }
  if (problems.length === 0) return policies;
  throw new CliFailure(ExitCode.usage, `${consequence}:\n${problems.join('\n')}`);
}
