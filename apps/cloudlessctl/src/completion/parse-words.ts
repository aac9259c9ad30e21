import type { Command, Option } from 'commander';

/** The words of an incomplete command line, before the word that is completed. */
export interface ParsedWords {
  /** The command that the words select so far. */
  readonly command: Command;
  readonly operands: readonly string[];
  /** The last value of each option that takes one, by camelCase name. */
  readonly values: ReadonlyMap<string, string>;
  /** The option whose value the next word is. */
  readonly pending: Option | undefined;
  /** True after `--`: the next word belongs to the command of a container. */
  readonly isAfterSeparator: boolean;
}

/** Splits the words of an incomplete command line into commands, options and operands. */
export function parseWords(program: Command, words: readonly string[]): ParsedWords {
  let command = program;
  let pending: Option | undefined;
  const operands: string[] = [];
  const values = new Map<string, string>();
  for (const word of words) {
    if (pending !== undefined) {
      values.set(pending.attributeName(), word);
      pending = undefined;
    } else if (word === '--') {
      return { command, operands, values, pending, isAfterSeparator: true };
    } else if (word.startsWith('-') && word !== '-') {
      const [flag = '', value] = splitFlag(word);
      const option = findOption(command, flag);
      if (option === undefined || !option.required) continue;
      if (value === undefined) pending = option;
      else values.set(option.attributeName(), value);
    } else {
      const child = operands.length === 0 ? findSubcommand(command, word) : undefined;
      if (child === undefined) operands.push(word);
      else command = child;
    }
  }
  return { command, operands, values, pending, isAfterSeparator: false };
}

/** Returns the subcommand with this name or alias. */
export function findSubcommand(command: Command, word: string): Command | undefined {
  return command.commands.find((child) => child.name() === word || child.aliases().includes(word));
}

/** Returns the option with this long or short flag. */
export function findOption(command: Command, flag: string): Option | undefined {
  return command.options.find(({ short, long }) => short === flag || long === flag);
}

/**
 * Splits `--flag=value` and `-fvalue`. A word without a value yields only the flag.
 */
export function splitFlag(word: string): readonly string[] {
  const [, flag, value] = /^(--[^=]+)=(.*)$/s.exec(word) ?? /^(-[^-])(.+)$/s.exec(word) ?? [];
  return flag === undefined || value === undefined ? [word] : [flag, value];
}
