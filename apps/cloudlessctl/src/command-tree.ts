import { Option } from 'commander';
import type { Command } from 'commander';
import { withValues } from './completion/value-kinds.js';
import { OUTPUT_FORMATS, resolveSettings } from './config/settings.js';
import type { GlobalOptions } from './config/settings.js';
import { GLOBAL_OPTIONS_HEADING, addHelpEnd } from './help/help-format.js';
import { OPERAND_DESCRIPTIONS } from './help/operands.js';
import type { CliIo } from './io/io.js';
import { createStyle } from './output/style.js';
import type { CliSession } from './call/cli-session.js';
import { LocalSession } from './call/local-session.js';
import { withCallFailures } from './call/open-session.js';

/** The arguments of one call of a command that needs no coordinator. */
export interface LocalInvocation {
  readonly session: LocalSession;
  /** The operands before `--`. */
  readonly operands: readonly string[];
  /** The words after `--`, not parsed; undefined when the command line has no `--`. */
  readonly wordsAfterSeparator: readonly string[] | undefined;
  /** All options of the command by camelCase name, including its global options. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** The arguments of one call of a command. */
export interface Invocation extends LocalInvocation {
  readonly session: CliSession;
}

/**
 * Runs a command.
 * @returns The exit code; no value means 0.
 */
export type CommandAction = (invocation: Invocation) => Promise<number | void>;

/** Runs a command that needs no coordinator, as {@link CommandAction}. */
export type LocalAction = (invocation: LocalInvocation) => Promise<number | void>;

/**
 * Adds the command of a module below `parent`, or the subcommands of a group to the group `parent`.
 */
export type AddCommands = (tree: CommandTree, parent: Command) => unknown;

/**
 * Registers commands and runs the command that the arguments select. A command may be registered
 * below several parents. A command that was only declared has no options and no action until
 * {@link CommandTree.load} has loaded its module.
 */
export class CommandTree {
  /** Exit code of the command that ran; 0 before. */
  exitCode = 0;
  /** Loader of the module of each declared command whose module is not loaded. */
  private readonly loaders = new Map<Command, () => Promise<AddCommands>>();
  /** The declared groups: their modules add subcommands to them. */
  private readonly groups = new Set<Command>();

  constructor(
    readonly io: CliIo,
    private readonly argv: readonly string[],
  ) {}

  /**
   * Declares a command whose module is loaded when the command is selected.
   * @param load - Imports the function that adds the command with {@link addCommand}, with the same
   *   name and description.
   * @param hidden - True: the help text does not list the command.
   */
  declareCommand(
    parent: Command,
    name: string,
    description: string,
    load: () => Promise<AddCommands>,
    { hidden = false } = {},
  ): Command {
    const command = parent.command(name, { hidden }).description(description);
    this.loaders.set(command, load);
    return command;
  }

  /**
   * Declares a command that only contains subcommands. The module is loaded when the group is
   * selected.
   * @param load - Imports the function that adds the subcommands to the group.
   */
  declareGroup(
    parent: Command,
    name: string,
    description: string,
    load: () => Promise<AddCommands>,
  ): Command {
    const group = this.addGroup(parent, name, description);
    this.groups.add(group);
    this.loaders.set(group, load);
    return group;
  }

  /**
   * Loads the module of the command that the words of a command line select, if there is one.
   * @param words - The words after the program name.
   */
  async load(program: Command, words: readonly string[]): Promise<void> {
    const name = findFirstOperand(program, words);
    const command = program.commands.find(
      (candidate) => candidate.name() === name || candidate.aliases().includes(name ?? ''),
    );
    if (command !== undefined) await this.loadCommand(program, command);
  }

  /** Loads the modules of all declared commands. */
  async loadAll(program: Command): Promise<void> {
    for (const command of program.commands) await this.loadCommand(program, command);
  }

  private async loadCommand(parent: Command, command: Command): Promise<void> {
    const load = this.loaders.get(command);
    if (load === undefined) return;
    (await load())(this, this.groups.has(command) ? command : parent);
    this.loaders.delete(command);
  }

  /**
   * Adds a command with the global options and an action. The action gets a session that can call a
   * coordinator and is closed after the action. An error of a call is thrown as a
   * {@link CliFailure}.
   * @param usage - Name and operands, for example `scale <name> <replicas>`.
   */
  addCommand(parent: Command, usage: string, description: string, action: CommandAction): Command {
    const connect: LocalAction = (invocation) =>
      withCallFailures(invocation.session, (session) => action({ ...invocation, session }));
    return this.addLocalCommand(parent, usage, description, connect, () => false);
  }

  /** Adds a command that works without a coordinator and without a valid context. */
  addOfflineCommand(
    parent: Command,
    usage: string,
    description: string,
    action: LocalAction,
  ): Command {
    return this.addLocalCommand(parent, usage, description, action, () => true);
  }

  /**
   * Adds a command whose action itself opens a session to call a coordinator, when it needs one.
   * @param isOffline - Returns true when the command with these options needs no coordinator. A
   *   current context that does not exist is then no error.
   */
  addLocalCommand(
    parent: Command,
    usage: string,
    description: string,
    action: LocalAction,
    isOffline: (options: LocalInvocation['options']) => boolean,
  ): Command {
    const [name = '', ...operands] = usage.split(' ');
    const declared = parent.commands.find(
      (command) => command.name() === name && this.loaders.has(command),
    );
    const command = (declared ?? parent.command(name))
      .description(description)
      .showHelpAfterError('Run the command with --help for usage.');
    for (const operand of operands) {
      const name = operand.replaceAll(/[<>[\].]/g, '');
      command.argument(operand, OPERAND_DESCRIPTIONS[name]);
    }
    addGlobalOptions(command);
    addHelpEnd(command, getCommandPath(command));
    this.setAction(command, action, isOffline);
    return command;
  }

  /** Sets the action of a command, which gets a session with the resolved settings. */
  private setAction(
    command: Command,
    action: LocalAction,
    isOffline: (options: LocalInvocation['options']) => boolean,
  ): void {
    command.action(async () => {
      const separator = this.argv.indexOf('--');
      const wordsAfterSeparator = separator < 0 ? undefined : this.argv.slice(separator + 1);
      const options = command.opts<Record<string, unknown>>();
      const global = readGlobalOptions(command);
      const settings = await resolveSettings(global, this.io, isOffline(options));
      const session = new LocalSession(
        this.io,
        settings,
        createStyle(this.io, {
          hasColours: global.color !== false,
          isUtc: global.utc === true,
          hidesHeaders: options['headers'] === false,
        }),
      );
      const operands = command.args.slice(
        0,
        command.args.length - (wordsAfterSeparator?.length ?? 0),
      );
      this.exitCode = (await action({ session, operands, wordsAfterSeparator, options })) ?? 0;
    });
  }

  /** Adds a command that only contains subcommands. */
  addGroup(parent: Command, name: string, description: string): Command {
    const command = parent.command(name).description(description);
    addGlobalOptions(command);
    return command;
  }
}

/**
 * Returns the first word that is neither an option of `command` nor the value of an option;
 * undefined when there is none before `--`.
 */
function findFirstOperand(command: Command, words: readonly string[]): string | undefined {
  for (let index = 0; index < words.length; index += 1) {
    const word = words[index] ?? '';
    if (word === '--') return undefined;
    if (!word.startsWith('-')) return word;
    if (
      command.options.some(
        ({ short, long, required }) => required && (short === word || long === word),
      )
    )
      index += 1;
  }
  return undefined;
}

/** Returns the names that select a command, without the program name: `node drain`. */
function getCommandPath(command: Command): string {
  const { parent } = command;
  return parent === null || parent.parent === null
    ? command.name()
    : `${getCommandPath(parent)} ${command.name()}`;
}

/** Adds the global options. They are accepted before and after a subcommand. */
export function addGlobalOptions(command: Command): void {
  const options = [
    new Option(
      '--server <url>',
      'URL of the coordinator, or several separated by commas (default: that of the context, else http://127.0.0.1:8080)',
    ).argParser((server: string, before: string | undefined) =>
      before === undefined ? server : `${before},${server}`,
    ),
    new Option(
      '--token-file <file>',
      'file with a token, for servers with https (default: the identity of the context)',
    ),
    new Option(
      '--ca-file <file>',
      'file with the root certificates to trust in PEM (default: those of the identity or the token)',
    ),
    new Option(
      '--context <context>',
      'context of the configuration file (default: the current context)',
    ),
    new Option(
      '-n, --namespace <namespace>',
      'namespace of names without one (default: that of the context, else default)',
    ),
    withValues(
      new Option(
        '-o, --output <format>',
        "table, wide, json, yaml, name, manifest, jsonpath='{.items[*].name}' or custom-columns=NAME:.name (default: table)",
      ),
      OUTPUT_FORMATS,
    ),
    new Option('--no-color', 'disable colours'),
    new Option('--utc', 'show times in UTC instead of local time'),
    new Option(
      '--timeout <duration>',
      'time limit of a call (default: 30s), with --wait of the whole wait (default: 10m)',
    ),
    new Option(
      '--request-id <id>',
      'request id of a change: repeated calls with the same id take effect once',
    ),
  ];
  for (const option of options) command.addOption(option.helpGroup(GLOBAL_OPTIONS_HEADING));
}

/** The global options by their camelCase names in {@link Invocation.options}. */
export const GLOBAL_OPTION_NAMES = [
  'server',
  'context',
  'namespace',
  'output',
  'color',
  'utc',
  'timeout',
  'requestId',
  'tokenFile',
  'caFile',
] as const;

/** Returns the global options given to a command, or else the options given to its parents. */
function readGlobalOptions(command: Command): GlobalOptions {
  const values: Record<string, unknown> = {};
  for (let source: Command | null = command; source !== null; source = source.parent) {
    for (const name of GLOBAL_OPTION_NAMES) {
      if (!(name in values) && source.getOptionValueSource(name) === 'cli')
        values[name] = source.getOptionValue(name);
    }
  }
  return values;
}
