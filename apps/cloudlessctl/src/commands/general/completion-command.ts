import { Argument } from 'commander';
import type { Command } from 'commander';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { requireOperand } from '../options.js';
import { findCandidates } from './find-completions.js';

/**
 * Hidden command that the completion scripts call with the words of the command line after `--`.
 * The helper command completes the last word.
 */
const HELPER_COMMAND = '__complete';

const SCRIPTS: Readonly<Record<string, string>> = {
  bash: `_cloudlessctl() {
  local IFS=$'\\n'
  COMPREPLY=($(cloudlessctl ${HELPER_COMMAND} -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _cloudlessctl cloudlessctl
`,
  zsh: `#compdef cloudlessctl
_cloudlessctl() {
  local -a candidates
  candidates=("\${(@f)$(cloudlessctl ${HELPER_COMMAND} -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  [[ -n "$candidates" ]] && compadd -a candidates || _files
}
compdef _cloudlessctl cloudlessctl
`,
  fish: `function __cloudlessctl_complete
  set -l words (commandline -opc)[2..-1] (commandline -ct)
  cloudlessctl ${HELPER_COMMAND} -- $words 2>/dev/null
end
complete -c cloudlessctl -a '(__cloudlessctl_complete)'
`,
};

/** Adds `completion`. */
export function addCompletionCommand(tree: CommandTree, parent: Command): void {
  const shell = new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS));
  const print = async (invocation: LocalInvocation): Promise<void> =>
    invocation.session.print(SCRIPTS[requireOperand(invocation, 0, 'shell')] ?? '');
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
      '\nbash: source <(cloudlessctl completion bash)\nzsh:  source <(cloudlessctl completion zsh)\nfish: cloudlessctl completion fish | source',
    );
}

/** Adds the hidden command that the completion scripts call. */
export function addCompletionHelper(tree: CommandTree, program: Command): void {
  tree.addOfflineCommand(
    program,
    `${HELPER_COMMAND} [words...]`,
    'print the candidates for the last word',
    async ({ session, wordsAfterSeparator = [] }) => {
      await tree.load(program, wordsAfterSeparator);
      const candidates = await findCandidates(program, wordsAfterSeparator, session);
      await session.print(candidates.map((candidate) => `${candidate}\n`).join(''));
    },
  );
}
