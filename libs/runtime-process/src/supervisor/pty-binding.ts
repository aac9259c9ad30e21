import { createRequire } from 'node:module';

/**
 * The part of node-pty's native half that is used here: its other half loses output of a reader
 * that is slow.
 */
export interface PtyBinding {
  /**
   * Starts a process that leads a session with a new terminal. The descriptor is the terminal's
   * other end, not blocking.
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
 * Terminals of this machine; undefined where the optional package is not installed or does not run.
 */
export function loadPtyBinding(): PtyBinding | undefined {
  loaded ??= { binding: load() };
  return loaded.binding;
}

function load(): PtyBinding | undefined {
  const require = createRequire(import.meta.url);
  try {
    const { requireBinary } = require(`${PACKAGE}/requireBinary.js`) as {
      requireBinary: (file: string) => PtyBinding;
    };
    return requireBinary('pty.node');
  } catch {
    return undefined; // no terminals then: capability `exec.tty` is missing
  }
}

/** The program that macOS needs to start a process in a terminal; not used elsewhere. */
export function spawnHelperPath(): string {
  if (process.platform !== 'darwin') return '';
  return createRequire(import.meta.url).resolve(
    `${PACKAGE}-${process.platform}-${process.arch}/spawn-helper`,
  );
}
