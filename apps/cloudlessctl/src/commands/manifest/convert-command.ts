import type { Command } from 'commander';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import { convertManifests } from '../../manifest/convert/convert.js';
import { formatProblem } from '../../manifest/yaml-reader.js';
import { getListOption, hasFlag } from '../options.js';
import { readFiles } from '../workload/read-manifests.js';

/** Adds `convert`, which translates Compose files and Kubernetes objects. */
export function addConvertCommand(tree: CommandTree, parent: Command): void {
  tree
    .addOfflineCommand(
      parent,
      'convert',
      'translate Compose files and Kubernetes objects to manifests',
      convert,
    )
    .requiredOption(
      '-f, --filename <path>',
      'file or directory to translate; - for standard input (repeatable)',
      (value: string, previous: readonly string[] = []) => [...previous, value],
    )
    .option('--strict', 'exit with 2 when something was left out or changed');
}

/**
 * Prints the manifests to standard output, and all that was left out or changed to standard error.
 * Variables of Compose files get their values from the environment.
 */
async function convert(invocation: LocalInvocation): Promise<number> {
  const { session } = invocation;
  const sources = await readFiles(session.io, getListOption(invocation, 'filename'));
  const conversion = convertManifests(sources, session.io.env);
  if ('problem' in conversion) throw createUsageFailure(conversion.problem);
  const { manifest, notes } = conversion;
  for (const note of notes) await session.printNotice(formatProblem(note));
  if (manifest === '') throw new CliFailure(ExitCode.usage, 'found no object to translate');
  await session.print(manifest);
  return hasFlag(invocation, 'strict') && notes.length > 0 ? ExitCode.usage : ExitCode.ok;
}
