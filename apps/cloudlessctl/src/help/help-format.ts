import { Help, Option } from 'commander';
import type { Command } from 'commander';
import { findExamples } from './examples.js';

/** Heading of the options that every command has. They are listed last. */
export const GLOBAL_OPTIONS_HEADING = 'Global options:';

/** Width of help texts when the output is no terminal, or wider than this. */
const MAX_WIDTH = 100;

/**
 * Sets how help texts look. Subcommands inherit the settings, so call this before commands are
 * declared.
 */
export function formatHelp(program: Command): void {
  let negatable = new Set<string>();
  program
    .addHelpOption(new Option('-h, --help', 'show the help').helpGroup(GLOBAL_OPTIONS_HEADING))
    .configureHelp({
      subcommandTerm: (command) => [command.name(), ...command.aliases()].join(', '),
      commandDescription: (command) => toSentence(command.description()),
      subcommandDescription: (command) => toSentence(command.description()),
      argumentDescription: (argument) => toSentence(argument.description),
      visibleOptions: (command) => {
        negatable = listNegatable(command);
        return Help.prototype.visibleOptions.call(new Help(), command);
      },
      optionTerm: ({ long, flags }) =>
        typeof long === 'string' && negatable.has(long) ? `--[no-]${long.slice(2)}` : flags,
      optionDescription: describeOption,
      formatHelp: formatWithGlobalOptionsLast,
    });
}

/** Adds the examples of a command to the end of its help text. */
export function addHelpEnd(command: Command, path: string): void {
  const examples = findExamples(path);
  if (examples.length > 0)
    command.addHelpText(
      'after',
      ['\nExamples:', ...examples.map((example) => `  cloudlessctl ${example}`)].join('\n'),
    );
}

/** Adds paragraphs to the end of a help text, wrapped to the width of the help. */
export function addNotes(command: Command, text: string): Command {
  return command.addHelpText('after', ({ error, command: shown }) => {
    const { getOutHelpWidth, getErrHelpWidth } = shown.configureOutput();
    const width = (error ? getErrHelpWidth?.() : getOutHelpWidth?.()) ?? MAX_WIDTH;
    return `\n${new Help().boxWrap(text, Math.min(width, MAX_WIDTH))}`;
  });
}

/** Returns the flags whose hidden counterpart begins with `--no-`. */
function listNegatable(command: Command): Set<string> {
  return new Set(
    command.options
      .filter(({ hidden, long }) => hidden && long?.startsWith('--no-') === true)
      .map(({ long }) => `--${long?.slice('--no-'.length)}`),
  );
}

/** Adds the values that the description does not name, and the default value. */
function describeOption(option: Option): string {
  const { description, argChoices = [], defaultValue, defaultValueDescription, required } = option;
  const missing = argChoices.some((value) => !description.includes(value));
  const given = required && typeof defaultValue === 'string' ? defaultValue : undefined;
  const shown = defaultValueDescription ?? given;
  return [
    toSentence(description),
    ...(missing ? [`(${argChoices.join(', ')})`] : []),
    ...(shown === undefined ? [] : [`(default: ${shown})`]),
  ].join(' ');
}

/** Formats a help text as commander does, with the global options after the commands. */
function formatWithGlobalOptionsLast(command: Command, helper: Help): string {
  const text = Help.prototype.formatHelp.call(helper, command, helper);
  const sections = text.trimEnd().split('\n\n');
  const isGlobal = (section: string): boolean => section.startsWith(GLOBAL_OPTIONS_HEADING);
  return `${[
    ...sections.filter((section) => !isGlobal(section)),
    ...sections.filter(isGlobal),
  ].join('\n\n')}\n`;
}

/** Begins a text with a capital letter, unless the first word is a name such as `nofile`. */
function toSentence(text: string): string {
  return /^[a-z]+(?=[\s,;:]|$)/.test(text) ? text.slice(0, 1).toUpperCase() + text.slice(1) : text;
}
