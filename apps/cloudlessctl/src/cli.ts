import { Command, CommanderError } from 'commander';
import { CommandTree, addGlobalOptions } from './command-tree.js';
import { addAdminCommands } from './commands/admin-commands.js';
import { addApplyCommand } from './commands/apply-command.js';
import { addCompletionCommands } from './commands/completion-command.js';
import { addContextCommands } from './commands/context-commands.js';
import { addEventCommands } from './commands/event-commands.js';
import { addExecCommand } from './commands/exec-command.js';
import { addGeneralCommands } from './commands/general-commands.js';
import { addLogCommand } from './commands/log-command.js';
import { addNodeCommands } from './commands/node-commands.js';
import { addPortForwardCommand } from './commands/port-forward-command.js';
import { addRolloutCommands } from './commands/rollout-commands.js';
import { addNodeTop, addTopCommands, addWorkloadTop } from './commands/top-commands.js';
import { addSharedWorkloadCommands, addWorkloadCommands } from './commands/workload-commands.js';
import { CliFailure, ExitCode } from './failure.js';
import { BrokenPipeError } from './io.js';
import type { CliIo } from './io.js';
import { VERSION } from './version.js';

const EXIT_CODES_HELP = `
Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict, 5 unavailable, 6 timeout, 7 no capacity, 8 rollout failed.
exec ends with the code of the command it ran.`;

/**
 * Runs one command line.
 * @param argv - The words after the program's name.
 * @returns The exit code; whatever is to be said has been written.
 */
export async function run(argv: readonly string[], io: CliIo): Promise<number> {
  const written: Promise<void>[] = [];
  try {
    const tree = new CommandTree(io, argv);
    const program = buildProgram(tree, written);
    try {
      await program.parseAsync(argv, { from: 'user' });
    } finally {
      await Promise.all(written);
    }
    return tree.exitCode;
  } catch (reason) {
    return await finish(reason, io);
  }
}

function buildProgram(tree: CommandTree, written: Promise<void>[]): Command {
  const { io } = tree;
  const program = new Command('cloudlessctl')
    .description('Runs workloads on a Cloudless cluster.')
    .version(`cloudlessctl ${VERSION}`, '--version', 'show the version')
    .exitOverride()
    .enablePositionalOptions()
    .showHelpAfterError('(--help shows what is possible)')
    .configureOutput({
      writeOut: (text) => void written.push(io.stdout.write(text)),
      writeErr: (text) => void written.push(io.stderr.write(text)),
      outputError: (text, write) => write(text.replace(/^error: /, 'cloudlessctl: ')),
      getOutHelpWidth: () => io.stdout.columns,
      getErrHelpWidth: () => io.stderr.columns,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    })
    .addHelpText('after', EXIT_CODES_HELP);
  addGlobalOptions(program);
  const workload = tree.group(program, 'workload', 'create, change and look at workloads');
  addWorkloadCommands(tree, workload);
  addRolloutCommands(
    tree,
    tree.group(
      program,
      'rollout',
      'follow, stop, promote and undo the change from one version to another',
    ),
  );
  const node = tree.group(program, 'node', 'look at nodes and take them out of use');
  addNodeCommands(tree, node);
  addNodeTop(tree, node, 'top');
  addWorkloadTop(tree, workload, 'top');
  addTopCommands(tree, tree.group(program, 'top', 'what nodes, workloads and replicas use'));
  addContextCommands(tree, tree.group(program, 'context', 'choose between clusters'));
  addAdminCommands(
    tree,
    tree.group(program, 'admin', "back up and restore the coordinator's state"),
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

/** Says what went wrong, and gives its exit code. */
async function finish(reason: unknown, io: CliIo): Promise<number> {
  if (reason instanceof BrokenPipeError) return ExitCode.ok;
  if (reason instanceof CommanderError) return reason.exitCode === 0 ? ExitCode.ok : ExitCode.usage;
  if (io.signal.aborted) return ExitCode.interrupted;
  const failure = reason instanceof CliFailure ? reason : undefined;
  const message = failure?.message ?? (reason instanceof Error ? reason.message : String(reason));
  try {
    await io.stderr.write(`cloudlessctl: ${message}\n`);
  } catch (gone) {
    if (!(gone instanceof BrokenPipeError)) throw gone;
  }
  return failure?.exitCode ?? ExitCode.error;
}
