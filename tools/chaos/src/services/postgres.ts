import { execFileSync } from 'node:child_process';

/** Account without rights, as which PostgreSQL runs. */
const NOBODY = 65_534;

/** The programs of PostgreSQL. */
export const POSTGRES = {
  server: '/usr/local/bin/postgres',
  initdb: '/usr/local/bin/initdb',
} as const;

/** Returns the arguments that run a program as an account without rights. */
export const asNobody = (...command: readonly string[]): readonly string[] => [
  'setpriv',
  ...[`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'],
  ...command,
];

/** Creates a directory of the account without rights. */
export function makeDirectoryOfNobody(directory: string): void {
  execFileSync('install', ['-d', '-m', '0700', '-o', String(NOBODY), directory]);
}
