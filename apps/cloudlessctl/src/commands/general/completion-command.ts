import { Argument } from 'commander';
import type { Command } from 'commander';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { requireOperand } from '../options.js';
import { LocalSession } from '../../call/local-session.js';
import { findCandidates } from '../../completion/find-candidates.js';
import { COMPLETION_SCRIPTS, formatCandidates } from '../../completion/scripts.js';
import { resolveSettings } from '../../config/settings.js';
import type { GlobalOptions } from '../../config/settings.js';

/** Adds `completion`. */
export function addCompletionCommand(tree: CommandTree, parent: Command): void {
  const shell = new Argument('<shell>', 'the shell').choices(Object.keys(COMPLETION_SCRIPTS));
  const print = async (invocation: LocalInvocation): Promise<void> =>
    invocation.session.print(COMPLETION_SCRIPTS[requireOperand(invocation, 0, 'shell')] ?? '');
  tree
    .addOfflineCommand(
      parent,
      'completion',
      'print the script for shell completion of commands, flags and names',
      print,
    )
    .addArgument(shell)
    .addHelpText(
      'after',
      `
Enable completion in this shell. For new shells, add the line to the file:
  bash  source <(cloudlessctl completion bash)       ~/.bashrc
  zsh   source <(cloudlessctl completion zsh)        ~/.zshrc
  fish  cloudlessctl completion fish | source        ~/.config/fish/config.fish

Shells complete cloudlessctl, not "npx cloudlessctl". In a checkout, first run:
  PATH="$PWD/node_modules/.bin:$PATH"`,
    );
}

/** Adds the hidden command that the completion scripts call. */
export function addCompletionHelper(tree: CommandTree, program: Command): void {
  tree.addOfflineCommand(
    program,
    '__complete [words...]',
    'print the candidates for the last word',
    async ({ session, wordsAfterSeparator = [] }) => {
      const open = async (options: GlobalOptions): Promise<LocalSession> => {
        const settings = await resolveSettings(options, session.io);
        return new LocalSession(session.io, settings, session.style);
      };
      await session.print(
        formatCandidates(await findCandidates(tree, program, wordsAfterSeparator, open)),
      );
    },
  );
}
