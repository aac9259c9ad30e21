import { Command, CommanderError } from 'commander';
import { BUILD } from '@cloudless/app-kit';
import { CommandTree, addGlobalOptions } from './command-tree.js';
import { declareCommands } from './commands.js';
import { CliFailure, ExitCode } from './call/failure.js';
import { addNotes, formatHelp } from './help/help-format.js';
import { BrokenPipeError } from './io/io.js';
import type { CliIo } from './io/io.js';

const EXIT_CODES_HELP = `Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict, 5 unavailable, 6 timeout, 7 no capacity, 8 rollout failed, 9 not confirmed.
exec exits with the exit code of its command.`;

/**
 * Runs one command line and prints its results and errors. Resolves when all output is written.
 * @param argv - The words after the program name.
 * @returns The exit code, see {@link ExitCode}.
 */
export async function run(argv: readonly string[], io: CliIo): Promise<number> {
  const pendingWrites: Promise<void>[] = [];
  try {
    const tree = new CommandTree(io, argv);
    const program = buildProgram(tree, pendingWrites);
    try {
      await tree.load(program, argv);
      await program.parseAsync(argv, { from: 'user' });
    } finally {
      await Promise.all(pendingWrites);
    }
    return tree.exitCode;
  } catch (reason) {
    return await reportFailure(reason, io);
  }
}

/**
 * Declares all commands.
 * @param pendingWrites - Receives the writes of help texts and usage errors, because commander does
 *   not wait for a write.
 */
function buildProgram(tree: CommandTree, pendingWrites: Promise<void>[]): Command {
  const { io } = tree;
  const program = new Command('cloudlessctl')
    .description('Controls a Cloudless cluster.')
    .version(`cloudlessctl ${BUILD}`, '--version', 'show the version')
    .exitOverride()
    .enablePositionalOptions()
    .showHelpAfterError('Run the command with --help for usage.')
    .configureOutput({
      writeOut: (text) => void pendingWrites.push(io.stdout.write(text)),
      writeErr: (text) => void pendingWrites.push(io.stderr.write(text)),
      outputError: (text, write) => write(text.replace(/^error: /, 'cloudlessctl: ')),
      getOutHelpWidth: () => io.stdout.columns,
      getErrHelpWidth: () => io.stderr.columns,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    });
  formatHelp(program);
  addNotes(program, EXIT_CODES_HELP);
  addGlobalOptions(program);
  declareCommands(tree, program);
  return program;
}

/**
 * Prints the error message of a failed command. An output pipe that its reader has closed and
 * Ctrl-C print no message.
 * @returns The exit code.
 */
async function reportFailure(reason: unknown, io: CliIo): Promise<number> {
  if (reason instanceof BrokenPipeError) return ExitCode.ok;
  if (reason instanceof CommanderError) return reason.exitCode === 0 ? ExitCode.ok : ExitCode.usage;
  if (io.signal.aborted) return ExitCode.interrupted;
  const failure = reason instanceof CliFailure ? reason : undefined;
  const message = failure?.message ?? (reason instanceof Error ? reason.message : String(reason));
  try {
    await io.stderr.write(`cloudlessctl: ${message}\n`);
  } catch (writeError) {
    if (!(writeError instanceof BrokenPipeError)) throw writeError;
  }
  return failure?.exitCode ?? ExitCode.error;
}
