import { closeSync, constants, openSync, readdirSync, readlinkSync, readSync } from 'node:fs';

const CHUNK = Buffer.allocUnsafe(64 * 1024);

/**
 * Discards the input that a command left unread when it ended. containerd 1.6 reports no exit code
 * before it has passed all input to the shim, and no process empties that pipe any more.
 * @param pipes - Pipes of that command only, from {@link findInputPipes}.
 */
export function drainInput(pipes: readonly string[]): void {
  for (const file of pipes) drainPipe(file);
}

/**
 * Lists the pipes for the input of the commands of a container.
 * @param shimPid - Parent of the container's main process, which holds the pipes of its commands.
 */
export function findInputPipes(shimPid: number): ReadonlySet<string> {
  const directory = `/proc/${shimPid}/fd`;
  const pipes = new Set<string>();
  for (const name of listNames(directory)) {
    try {
      const target = readlinkSync(`${directory}/${name}`);
      if (target.endsWith('-stdin')) pipes.add(target);
    } catch {
      // closed meanwhile
    }
  }
  return pipes;
}

function listNames(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch {
    return []; // the process has ended
  }
}

function drainPipe(file: string): void {
  let descriptor: number;
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return; // not in this mount namespace, or removed
  }
  try {
    while (readSync(descriptor, CHUNK) > 0);
  } catch {
    // empty for now
  } finally {
    closeSync(descriptor);
  }
}
