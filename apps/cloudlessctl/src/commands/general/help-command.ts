import type { Command } from 'commander';
import type { CommandTree } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { suggestSimilar } from '../../suggest.js';

/** Adds `help`, which shows the help text of any command, such as `help node drain`. */
export function addHelpCommand(tree: CommandTree, program: Command): void {
  tree.addOfflineCommand(
    program,
    'help [command...]',
    'show the help of a command',
    async ({ operands }) => {
      await tree.load(program, operands);
      findCommand(program, operands).outputHelp();
    },
  );
}

/**
 * Returns the command that the words select.
 * @throws {@link CliFailure} with exit code 2 when there is no such command.
 */
function findCommand(program: Command, words: readonly string[]): Command {
  let command = program;
  for (const word of words) {
    const child = command.commands.find(
      (candidate) => candidate.name() === word || candidate.aliases().includes(word),
    );
    if (child === undefined) {
      const names = command
        .createHelp()
        .visibleCommands(command)
        .map((known) => known.name());
      throw createUsageFailure(
        `unknown command '${word}'${suggestSimilar(word, names)}; see: ${getPath(command)} --help`,
      );
    }
    command = child;
  }
  return command;
}

/** Returns the words that select a command, from the program name on. */
function getPath(command: Command): string {
  return command.parent === null ? command.name() : `${getPath(command.parent)} ${command.name()}`;
}
