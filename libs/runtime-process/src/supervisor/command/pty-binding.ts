import { createRequire } from 'node:module';

/**
 * The used part of the native module of node-pty. Its JavaScript part is not used, because it loses
 * output when the reader is slow.
 */
export interface PtyBinding {
  /**
   * Starts a process that leads a session with a new terminal. `fd` is the non-blocking master end
   * of the terminal.
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
 * Returns the native module for terminals; undefined where the optional package is not installed or
 * does not load.
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
 * Returns the path of the program that macOS needs to start a process in a terminal; empty
 * elsewhere.
 */
export function findSpawnHelper(): string {
  if (process.platform !== 'darwin') return '';
  return createRequire(import.meta.url).resolve(
    `${PACKAGE}-${process.platform}-${process.arch}/spawn-helper`,
  );
}
