import { createRequire } from 'node:module';

/**
 * The functions of the native module of node-pty that terminals need. Cloudless does not use the
 * JavaScript code of node-pty, because that code loses output when the reader is slow.
 */
export interface PtyBinding {
  /**
   * Starts a process that leads a new session with a new terminal.
   * @param uid - User id, or -1 for the user of this process; `gid` alike.
   * @param utf8 - True when the input of the terminal is UTF-8.
   * @param helperPath - The result of {@link findSpawnHelper}.
   * @returns Process id, and the master end of the terminal as a non-blocking descriptor.
   */
  fork(
    file: string,
    args: readonly string[],
    env: readonly string[],
    cwd: string,
    columns: number,
    rows: number,
    uid: number,
    gid: number,
    utf8: boolean,
    helperPath: string,
    onExit: (code: number, signal: number) => void,
  ): { readonly fd: number; readonly pid: number };
  resize(fd: number, columns: number, rows: number): void;
}

const PACKAGE = '@lydell/node-pty';
let loaded: { readonly binding: PtyBinding | undefined } | undefined;

/**
 * Returns the native module for terminals; undefined when the optional package is not installed or
 * cannot be loaded.
 */
export function loadPtyBinding(): PtyBinding | undefined {
  loaded ??= { binding: loadBinding() };
  return loaded.binding;
}

function loadBinding(): PtyBinding | undefined {
  const require = createRequire(import.meta.url);
  try {
    const { requireBinary } = require(`${PACKAGE}/requireBinary.js`) as {
      requireBinary: (file: string) => PtyBinding;
    };
    return requireBinary('pty.node');
  } catch {
    return undefined; // no terminals: the capability `exec.tty` is missing
  }
}

/**
 * Returns the path of the program that starts a process in a terminal on macOS; empty on other
 * systems.
 */
export function findSpawnHelper(): string {
  if (process.platform !== 'darwin') return '';
  return createRequire(import.meta.url).resolve(
    `${PACKAGE}-${process.platform}-${process.arch}/spawn-helper`,
  );
}
