import { ConnectError } from '@connectrpc/connect';
import { Option } from 'commander';
import type { Command } from 'commander';
import { resolveSettings } from './config/settings.js';
import type { GlobalOptions } from './config/settings.js';
import { describeCallFailure } from './call/failure.js';
import type { CliIo } from './io/io.js';
import { createStyle } from './output/style.js';
import { CliSession } from './call/cli-session.js';

/** The arguments of one call of a command. */
export interface Invocation {
  readonly session: CliSession;
  /** The operands before `--`. */
  readonly operands: readonly string[];
  /** The words after `--`, not parsed; undefined when the command line has no `--`. */
  readonly wordsAfterSeparator: readonly string[] | undefined;
  /** All options of the command by camelCase name, including its global options. */
  readonly options: Readonly<Record<string, unknown>>;
}

/**
 * Runs a command.
 * @returns The exit code; no value means 0.
 */
export type CommandAction = (invocation: Invocation) => Promise<number | void>;

/**
 * Registers commands and runs the command that the arguments select. A command may be registered
 * below several parents.
 */
export class CommandTree {
  /** Exit code of the command that ran; 0 before. */
  exitCode = 0;
  /**
   * Commands that do not call a coordinator. They also work when the current context does not
   * exist.
   */
  private readonly offlineCommands = new Set<Command>();

  constructor(
    readonly io: CliIo,
    private readonly argv: readonly string[],
  ) {}

  /**
   * Adds a command with the global options and an action.
   * @param usage - Name and operands, for example `scale <name> <replicas>`.
   */
  addCommand(parent: Command, usage: string, description: string, action: CommandAction): Command {
    const command = parent
      .command(usage)
      .description(description)
      .showHelpAfterError('Run the command with --help for usage.');
    addGlobalOptions(command);
    this.setAction(command, action);
    return command;
  }

  /**
   * Sets the action of a command. The action gets a session with the resolved settings, which is
   * closed after the action. An error of a call is thrown as a {@link CliFailure}.
   */
  setAction(command: Command, action: CommandAction): void {
    command.action(async () => {
      const separator = this.argv.indexOf('--');
      const wordsAfterSeparator = separator < 0 ? undefined : this.argv.slice(separator + 1);
      const options = command.opts<Record<string, unknown>>();
      const global = readGlobalOptions(command);
      const settings = await resolveSettings(global, this.io, this.offlineCommands.has(command));
      const session = new CliSession(
        this.io,
        settings,
        createStyle(this.io, global.color !== false, global.utc === true),
      );
      const operands = command.args.slice(
        0,
        command.args.length - (wordsAfterSeparator?.length ?? 0),
      );
      try {
        this.exitCode = (await action({ session, operands, wordsAfterSeparator, options })) ?? 0;
      } catch (reason) {
        throw reason instanceof ConnectError ? describeCallFailure(reason, settings) : reason;
      } finally {
        session.close();
      }
    });
  }

  /** Adds a command that works without a coordinator and without a valid context. */
  addOfflineCommand(
    parent: Command,
    usage: string,
    description: string,
    action: CommandAction,
  ): Command {
    const command = this.addCommand(parent, usage, description, action);
    this.offlineCommands.add(command);
    return command;
  }

  /** Adds a command that only contains subcommands. */
  addGroup(parent: Command, name: string, description: string): Command {
    const command = parent.command(name).description(description);
    addGlobalOptions(command);
    return command;
  }
}

/** Adds the global options. They are accepted before and after a subcommand. */
export function addGlobalOptions(command: Command): void {
  const heading = 'Global options:';
  const options = [
    new Option('--server <url>', 'URL of the coordinator'),
    new Option('--context <name>', 'context of the configuration file to use'),
    new Option('-n, --namespace <namespace>', 'namespace for names without a namespace'),
    new Option('-o, --output <format>', 'output format: table, wide, json or yaml'),
    new Option('--no-color', 'disable colours'),
    new Option('--utc', 'show times in UTC instead of local time'),
    new Option('--timeout <duration>', 'time limit of one call, or with --wait of the whole wait'),
    new Option(
      '--request-id <id>',
      'request id of a change: repeated calls with the same id take effect once',
    ),
  ];
  for (const option of options) command.addOption(option.helpGroup(heading));
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
