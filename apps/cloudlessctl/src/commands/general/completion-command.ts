import { Argument } from 'commander';
import type { Command } from 'commander';
import { resolvePortName } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { parseWorkloadName } from '../../names.js';
import type { CliSession } from '../../call/cli-session.js';
import { requireOperand } from '../options.js';

/**
 * Hidden command that the completion scripts call with the words of the command line after `--`.
 * The last word is the one to complete.
 */
const HELPER_COMMAND = '__complete';
/** A shell must not hang while it completes a word. */
const LOOKUP_TIMEOUT_MS = 1_000;
const MAX_NAMES = 200;

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

/** Adds `completion` and the hidden command that the completion scripts call. */
export function addCompletionCommands(tree: CommandTree, program: Command): void {
  const shell = new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS));
  const print = async (invocation: Invocation): Promise<void> =>
    invocation.session.print(SCRIPTS[requireOperand(invocation, 0, 'shell')] ?? '');
  tree
    .addOfflineCommand(
      program,
      'completion',
      'print the script for shell completion of commands, flags and names',
      print,
    )
    .addArgument(shell)
    .addHelpText(
      'after',
      '\nbash: source <(cloudlessctl completion bash)\nzsh:  source <(cloudlessctl completion zsh)\nfish: cloudlessctl completion fish | source',
    );
  const helper = program
    .createCommand(HELPER_COMMAND)
    .copyInheritedSettings(program)
    .argument('[words...]');
  program.addCommand(helper, { hidden: true });
  tree.setAction(helper, async ({ session, wordsAfterSeparator }) => {
    const found = await findCandidates(program, wordsAfterSeparator ?? [], session);
    await session.print(found.map((candidate) => `${candidate}\n`).join(''));
  });
}

/** The candidates for the last of `words`. */
async function findCandidates(
  program: Command,
  words: readonly string[],
  session: CliSession,
): Promise<readonly string[]> {
  const typed = words.at(-1) ?? '';
  let command = program;
  const operands: string[] = [];
  for (const word of words.slice(0, -1)) {
    const child =
      operands.length === 0
        ? command.commands.find((candidate) => candidate.name() === word)
        : undefined;
    if (child !== undefined) command = child;
    else if (!word.startsWith('-')) operands.push(word);
  }
  const children = command.commands
    .map((child) => child.name())
    .filter((name) => !name.startsWith('_'));
  const listFlags = (): string[] => [
    ...command.options.flatMap(({ long }) => long ?? []),
    '--help',
  ];
  const all = typed.startsWith('-')
    ? listFlags()
    : children.length > 0
      ? children
      : await findNames(command, operands, session);
  return all.filter((candidate) => candidate.startsWith(typed));
}

async function findNames(
  command: Command,
  operands: readonly string[],
  session: CliSession,
): Promise<readonly string[]> {
  const verb = command.name();
  const choices = command.registeredArguments[operands.length]?.argChoices;
  if (choices !== undefined) return choices;
  const wantsKind = verb === 'get' || (verb === 'describe' && command.parent?.parent === null);
  if (wantsKind && operands.length === 0)
    return ['workloads', 'nodes', ...(verb === 'get' ? ['containers', 'events'] : [])];
  const nodes = command.parent?.name() === 'node' || /^nodes?$/.test(operands[0] ?? '');
  if (command.registeredArguments.length === 0 || verb === 'create') return [];
  try {
    const options = session.getCallOptions(LOOKUP_TIMEOUT_MS);
    if (nodes)
      return (await session.client.listNodes({ pageSize: MAX_NAMES }, options)).nodes.map(
        ({ id }) => id,
      );
    const [target] = operands;
    if (verb === 'port-forward' && target !== undefined) {
      const { spec } = await session.client.getWorkload(
        parseWorkloadName(target, session.settings.namespace),
        options,
      );
      return (spec?.ports ?? []).map(resolvePortName);
    }
    const page = await session.client.listWorkloads(
      { namespace: session.settings.namespace, pageSize: MAX_NAMES },
      options,
    );
    return page.workloads.map(({ name }) => name);
  } catch {
    // Without a coordinator there are no names. The shell falls back to file names; an error
    // message would disturb the command line.
    return [];
  }
}
