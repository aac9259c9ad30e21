import type { Command } from 'commander';
import { BUILD } from '@cloudless/app-kit';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { CliFailure, ExitCode } from '../../call/failure.js';
import { describeFailure } from '../../call/open-session.js';
import { hasFlag } from '../options.js';
import { getClientVersion } from './client-version.js';

/** Adds `version`. */
export function addVersionCommand(tree: CommandTree, parent: Command): void {
  tree
    .addLocalCommand(
      parent,
      'version',
      'print the versions of cloudlessctl and of the coordinator',
      showVersion,
      ({ client }) => client === true,
    )
    .option('--client', 'print only the version of cloudlessctl');
}

async function showVersion(invocation: LocalInvocation): Promise<number> {
  const { session } = invocation;
  if (!session.isStructured) await session.print(`cloudlessctl ${BUILD}\n`);
  if (hasFlag(invocation, 'client')) {
    if (session.isStructured) await session.printValue(getClientVersion());
    return ExitCode.ok;
  }
  try {
    const { showServerVersion } = await import('./server-version.js');
    await showServerVersion(session);
    return ExitCode.ok;
  } catch (reason) {
    const failure = await describeFailure(reason, session);
    if (!(failure instanceof CliFailure)) throw failure;
    // The version of cloudlessctl is printed even when the coordinator does not answer.
    if (session.isStructured) await session.printValue(getClientVersion());
    await session.printNotice(`cloudlessctl: ${failure.message}`);
    return failure.exitCode;
  }
}
