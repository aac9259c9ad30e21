import { closeSync, constants, openSync, readdirSync, readlinkSync, readSync } from 'node:fs';

/** Shared buffer for discarded input, of the size of a pipe. */
const CHUNK = Buffer.allocUnsafe(64 * 1024);

/**
 * Discards the input that an ended command left unread in its pipe. containerd 1.6 sends no exit
 * code before it has written all input to the pipe, and no process reads the pipe any more.
 * @param pipes - Paths of the pipes of that command only, because other commands still read theirs:
 *   the paths that {@link findInputPipes} lists after the start of the command and not before.
 */
export function drainInput(pipes: readonly string[]): void {
  for (const file of pipes) drainPipe(file);
}

/**
 * Lists the paths of the pipes for the input of all commands of a container.
 * @param shimPid - Process id of the shim: the parent of the container's main process, which has
 *   the pipes open.
 */
export function findInputPipes(shimPid: number): ReadonlySet<string> {
  const directory = `/proc/${shimPid}/fd`;
  const pipes = new Set<string>();
  for (const name of listNames(directory)) {
    try {
      const target = readlinkSync(`${directory}/${name}`);
      if (target.endsWith('-stdin')) pipes.add(target);
    } catch {
      // The descriptor was closed meanwhile.
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
    return; // the pipe was removed, or is not in this mount namespace
  }
  try {
    while (readSync(descriptor, CHUNK) > 0);
  } catch {
    // EAGAIN: the pipe is empty for now.
  } finally {
    closeSync(descriptor);
  }
}
