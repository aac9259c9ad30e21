import type { Command } from 'commander';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { ExecCommandResponseSchema, type ExecCommandResponse } from '@cloudless/api';
import type { CommandTree, Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { toTargetFields } from '../../names.js';
import { toMessageJson } from '../../call/cli-session.js';
import { getCommandAfterSeparator, hasFlag, requireOperand } from '../options.js';
import { execStream } from './exec-stream.js';
import { resolveReplicaTarget } from './resolve-target.js';

/** Limit of the API for the `stdin` field of ExecCommand. Longer input requires `-i`. */
const MAX_STDIN_BYTES = 1024 * 1024;
/** Exit codes of a program that does not exist, and of a program that cannot be executed. */
const EXIT_NOT_FOUND = 127;
const EXIT_NOT_EXECUTABLE = 126;
/** Length of container ids in messages of nodes. */
const SHORT_ID_LENGTH = 12;
/** Time limit that the coordinator sets for a command without `--timeout`. */
const DEFAULT_TIMEOUT_MS = 30_000;
/**
 * The coordinator ends the command at the time limit of the command. The time limit of the call is
 * longer by this margin, so that the result still arrives.
 */
const CALL_MARGIN_MS = 15_000;

/** Adds `exec`. */
export function addExecCommand(tree: CommandTree, parent: Command): void {
  tree
    .addCommand(
      parent,
      'exec <target> [command...]',
      'run a command in a workload, replica or container; the command follows --',
      exec,
    )
    .option('-i, --stdin', 'stream standard input to the command')
    .option('-t, --tty', 'allocate a terminal; Ctrl-C is sent to the command')
    .option('--no-stdin', 'do not read standard input');
}

/**
 * Runs the command and prints its output.
 * @returns The lowest 8 bits of the exit code of the command.
 */
async function exec(invocation: Invocation): Promise<number> {
  const { session } = invocation;
  const targetText = requireOperand(invocation, 0, 'target');
  const command = getCommandAfterSeparator(invocation, 1, 'cloudlessctl exec web -- ls -l');
  if (command.length === 0)
    throw createUsageFailure(
      'no command given: put the command after --, for example: cloudlessctl exec web -- ls -l',
    );
  const target = await resolveReplicaTarget(session, targetText);
  const [stdin, tty] = [hasFlag(invocation, 'stdin'), hasFlag(invocation, 'tty')];
  if (stdin || tty) return execStream(session, { target, command, stdin, tty });
  const { timeoutMs } = session.settings;
  const request = {
    ...toTargetFields(target),
    command: [...command],
    ...(timeoutMs === undefined ? {} : { timeout: durationFromMs(timeoutMs) }),
    stdin: await readStdin(invocation),
  };
  const result = await session.client.execCommand(
    request,
    session.getCallOptions((timeoutMs ?? DEFAULT_TIMEOUT_MS) + CALL_MARGIN_MS),
  );
  if (session.isStructured) {
    await session.printValue(toMessageJson(ExecCommandResponseSchema, result));
  } else {
    await session.print(toOutput(result.stdoutRaw, result.stdout));
    if (isStartFailure(result)) await session.io.stderr.write('cloudlessctl: ');
    await session.io.stderr.write(toOutput(result.stderrRaw, result.stderr));
    if (result.truncated)
      await session.printNotice(
        'cloudlessctl: the output is longer than 1 MiB and was truncated; use -i to stream it',
      );
  }
  return result.exitCode & 0xff;
}

/**
 * Returns true when the node could not execute the program: standard error then has the message of
 * the node, which begins with the container, instead of output of the command.
 */
function isStartFailure({ exitCode, containerId, stdout, stderr }: ExecCommandResponse): boolean {
  const isRefused = exitCode === EXIT_NOT_FOUND || exitCode === EXIT_NOT_EXECUTABLE;
  const shortId = containerId.slice(0, SHORT_ID_LENGTH);
  return isRefused && stdout === '' && stderr.startsWith(`container ${shortId}: `);
}

/**
 * Returns the exact bytes of an output stream. The API sends raw bytes only when the stream is not
 * UTF-8.
 */
function toOutput(raw: Uint8Array, text: string): Uint8Array | string {
  return raw.length > 0 ? raw : text;
}

/**
 * Returns all of standard input when it is a pipe or a file. Any other input may never end, so only
 * `-i` reads it. Returns no bytes with `--no-stdin`.
 * @throws {@link CliFailure} when the input is longer than {@link MAX_STDIN_BYTES}.
 */
async function readStdin({ session, options }: Invocation): Promise<Uint8Array> {
  const { stdin } = session.io;
  const isForwarded = options['stdin'] ?? stdin.kind === 'pipe';
  if (isForwarded !== true) return new Uint8Array();
  const bytes = await stdin.readAll(MAX_STDIN_BYTES);
  if (bytes === undefined)
    throw createUsageFailure('standard input is longer than 1 MiB; use -i to stream it');
  return bytes;
}
