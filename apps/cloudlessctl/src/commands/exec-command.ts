import type { Command } from 'commander';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { ExecCommandResponseSchema } from '@cloudless/api';
import type { CommandTree, Invocation } from '../command-tree.js';
import { usageFailure } from '../failure.js';
import { parseReplicaTarget, toTargetFields } from '../names.js';
import { messageJson } from '../session.js';
import { execStream } from './exec-stream.js';
import { commandAfterSeparator, flagOption, operand } from './options.js';

const MAX_STDIN_BYTES = 1024 * 1024;
/** What the coordinator gives a command that asks for nothing else. */
const DEFAULT_TIMEOUT_MS = 30_000;
/**
 * The coordinator ends the command at its limit; this long after it the call itself is given up.
 */
const GRACE_MS = 15_000;

/** Adds `exec`. */
export function addExecCommand(tree: CommandTree, parent: Command): void {
  tree
    .leaf(
      parent,
      'exec <target> [command...]',
      'run a command inside a workload, replica or container; it stands after --',
      exec,
    )
    .addHelpText('after', '\nA shell: cloudlessctl exec -it web -- sh')
    .option('-i, --stdin', 'forward the input as it comes, and show the output as it comes')
    .option('-t, --tty', 'give the command a terminal; Ctrl-C then goes to the command')
    .option('--no-stdin', 'do not read the input');
}

/** Passes on what the command wrote, and its exit code. */
async function exec(invocation: Invocation): Promise<number> {
  const { session } = invocation;
  const target = parseReplicaTarget(operand(invocation, 0, 'target'), session.settings.namespace);
  const command = commandAfterSeparator(invocation, 1, 'cloudlessctl exec web -- ls -l');
  if (command.length === 0)
    throw usageFailure(
      'the command is missing: it stands after --, as in: cloudlessctl exec web -- ls -l',
    );
  const [stdin, tty] = [flagOption(invocation, 'stdin'), flagOption(invocation, 'tty')];
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
    session.callOptions((timeoutMs ?? DEFAULT_TIMEOUT_MS) + GRACE_MS),
  );
  if (session.structured) {
    await session.printValue(messageJson(ExecCommandResponseSchema, result));
  } else {
    await session.print(toOutput(result.stdoutRaw, result.stdout));
    await session.io.stderr.write(toOutput(result.stderrRaw, result.stderr));
    if (result.truncated)
      await session.note('cloudlessctl: the output was longer than 1 MiB; the rest is left out');
  }
  return result.exitCode & 0xff;
}

function toOutput(raw: Uint8Array, text: string): Uint8Array | string {
  return raw.length > 0 ? raw : text;
}

/** A pipe or file is read to its end. Anything else may never end: it is forwarded only with -i. */
async function readStdin({ session, options }: Invocation): Promise<Uint8Array> {
  const { stdin } = session.io;
  const wanted = options['stdin'] ?? stdin.kind === 'pipe';
  if (wanted !== true) return new Uint8Array();
  const bytes = await stdin.readAll(MAX_STDIN_BYTES);
  if (bytes === undefined)
    throw usageFailure('the input is longer than 1 MiB: give -i to forward it as it comes');
  return bytes;
}
