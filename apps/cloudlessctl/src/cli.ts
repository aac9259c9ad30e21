import { Command, CommanderError } from 'commander';
import { VERSION } from '@cloudless/app-kit';
import { CommandTree, addGlobalOptions } from './command-tree.js';
import { addAdminCommands } from './commands/admin/admin-commands.js';
import { addApplyCommand } from './commands/workload/apply-command.js';
import { addCompletionCommands } from './commands/general/completion-command.js';
import { addContextCommands } from './commands/context/context-commands.js';
import { addEventCommands } from './commands/event/event-commands.js';
import { addExecCommand } from './commands/replica/exec-command.js';
import { addGeneralCommands } from './commands/general/general-commands.js';
import { addLogCommand } from './commands/replica/log-command.js';
import { addNodeCommands } from './commands/node/node-commands.js';
import { addPortForwardCommand } from './commands/replica/port-forward-command.js';
import { addRolloutCommands } from './commands/rollout/rollout-commands.js';
import {
  addNodeTopCommand,
  addTopCommands,
  addWorkloadTopCommand,
} from './commands/top/top-commands.js';
import {
  addSharedWorkloadCommands,
  addWorkloadCommands,
} from './commands/workload/workload-commands.js';
import { CliFailure, ExitCode } from './call/failure.js';
import { BrokenPipeError } from './io/io.js';
import type { CliIo } from './io/io.js';

const EXIT_CODES_HELP = `
Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict, 5 unavailable, 6 timeout, 7 no capacity, 8 rollout failed.
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
    .version(`cloudlessctl ${VERSION}`, '--version', 'show the version')
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
    })
    .addHelpText('after', EXIT_CODES_HELP);
  addGlobalOptions(program);
  const workload = tree.addGroup(program, 'workload', 'create, show, change and delete workloads');
  addWorkloadCommands(tree, workload);
  addRolloutCommands(
    tree,
    tree.addGroup(program, 'rollout', 'show, pause, resume, promote and undo rollouts'),
  );
  const node = tree.addGroup(program, 'node', 'show, cordon, drain, label and remove nodes');
  addNodeCommands(tree, node);
  addNodeTopCommand(tree, node, 'top');
  addWorkloadTopCommand(tree, workload, 'top');
  addTopCommands(
    tree,
    tree.addGroup(program, 'top', 'show resource usage of nodes, workloads and replicas'),
  );
  addContextCommands(
    tree,
    tree.addGroup(program, 'context', 'show and change the contexts of the configuration file'),
  );
  addAdminCommands(
    tree,
    tree.addGroup(program, 'admin', "back up and restore the coordinator's state"),
  );
  addApplyCommand(tree, program);
  addGeneralCommands(tree, program);
  addEventCommands(tree, program);
  for (const parent of [workload, program]) {
    addLogCommand(tree, parent);
    addExecCommand(tree, parent);
    addPortForwardCommand(tree, parent);
    addSharedWorkloadCommands(tree, parent);
  }
  addCompletionCommands(tree, program);
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
