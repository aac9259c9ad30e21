import { ConnectError } from '@connectrpc/connect';
import { Option } from 'commander';
import type { Command } from 'commander';
import { resolveSettings } from './config/settings.js';
import type { GlobalOptions } from './config/settings.js';
import { describeCallFailure } from './failure.js';
import type { CliIo } from './io.js';
import { styleOf } from './output/style.js';
import { Session } from './session.js';

/** What a command was called with. */
export interface Invocation {
  readonly session: Session;
  /** The operands before `--`. */
  readonly operands: readonly string[];
  /** Everything after `--`, untouched; `undefined` without one. */
  readonly rest: readonly string[] | undefined;
  /** The options of the command itself, by camelCase name. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** Runs a command. @returns its exit code, where that is not 0. */
export type CommandAction = (invocation: Invocation) => Promise<number | void>;

/**
 * Adds commands to the tree and runs the chosen one. The same command may stand in several places.
 */
export class CommandTree {
  /** Of the command that ran. */
  exitCode = 0;
  /**
   * Commands that talk to no coordinator, and so work also when the current context does not exist.
   */
  private readonly offline = new Set<Command>();

  constructor(
    readonly io: CliIo,
    private readonly argv: readonly string[],
  ) {}

  /**
   * Adds a command that does something.
   * @param usage - Name and operands, as in `scale <name> <replicas>`.
   */
  leaf(parent: Command, usage: string, description: string, action: CommandAction): Command {
    const command = parent
      .command(usage)
      .description(description)
      .showHelpAfterError('(--help shows what is possible)');
    addGlobalOptions(command);
    this.act(command, action);
    return command;
  }

  /** Makes a command do something. */
  act(command: Command, action: CommandAction): void {
    command.action(async () => {
      const separator = this.argv.indexOf('--');
      const rest = separator < 0 ? undefined : this.argv.slice(separator + 1);
      const options = command.opts<Record<string, unknown>>();
      const global = globalOptionsOf(command);
      const settings = await resolveSettings(global, this.io, this.offline.has(command));
      const session = new Session(this.io, settings, styleOf(this.io, global.color !== false));
      const operands = command.args.slice(0, command.args.length - (rest?.length ?? 0));
      try {
        this.exitCode = (await action({ session, operands, rest, options })) ?? 0;
      } catch (reason) {
        throw reason instanceof ConnectError ? describeCallFailure(reason, settings) : reason;
      } finally {
        session.close();
      }
    });
  }

  /** Adds a command that talks to no coordinator. */
  offlineLeaf(parent: Command, usage: string, description: string, action: CommandAction): Command {
    const command = this.leaf(parent, usage, description, action);
    this.offline.add(command);
    return command;
  }

  /** Adds a command that only holds others. */
  group(parent: Command, name: string, description: string): Command {
    const command = parent.command(name).description(description);
    addGlobalOptions(command);
    return command;
  }
}

/** Adds the options that every command takes; they may stand before or after it. */
export function addGlobalOptions(command: Command): void {
  const heading = 'Global options:';
  const options = [
    new Option('--server <url>', 'address of the coordinator'),
    new Option('--context <name>', 'context of the configuration to use'),
    new Option('-n, --namespace <namespace>', 'namespace of names that name none'),
    new Option('-o, --output <format>', 'table, wide, json or yaml'),
    new Option('--no-color', 'without colours'),
    new Option(
      '--timeout <duration>',
      'how long to wait for an answer, or with --wait for the end',
    ),
    new Option(
      '--request-id <id>',
      'makes a repeated change harmless: the same id gives the first result',
    ),
  ];
  for (const option of options) command.addOption(option.helpGroup(heading));
}

/** Names of the options that every command takes. */
export const GLOBAL_NAMES = [
  'server',
  'context',
  'namespace',
  'output',
  'color',
  'timeout',
  'requestId',
] as const;

/** The options every command takes, as given to the command or, where not, to what it stands in. */
function globalOptionsOf(command: Command): GlobalOptions {
  const found: Record<string, unknown> = {};
  for (let at: Command | null = command; at !== null; at = at.parent) {
    for (const name of GLOBAL_NAMES) {
      if (!(name in found) && at.getOptionValueSource(name) === 'cli')
        found[name] = at.getOptionValue(name);
    }
  }
  return found;
}
