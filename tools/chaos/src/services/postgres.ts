import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** Account without rights, as which PostgreSQL runs. */
const NOBODY = 65_534;
/** Directory in which Debian's packages have the programs of each release, outside of the path. */
const DEBIAN_RELEASES = '/usr/lib/postgresql';

/** The programs of PostgreSQL: those of Debian's newest release, or else those of the path. */
export const POSTGRES = { server: findProgram('postgres'), initdb: findProgram('initdb') } as const;

/** Returns the arguments that run a program as an account without rights. */
export const asNobody = (...command: readonly string[]): readonly string[] => [
  'setpriv',
  ...[`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'],
  ...command,
];

/**
 * Creates a directory of the account without rights. The account may then pass the directory above,
 * whose other content stays closed.
 */
export function makeDirectoryOfNobody(directory: string): void {
  chmodSync(dirname(directory), 0o711);
  execFileSync('install', ['-d', '-m', '0700', '-o', String(NOBODY), directory]);
}

function findProgram(name: string): string {
  const releases = existsSync(DEBIAN_RELEASES) ? readdirSync(DEBIAN_RELEASES) : [];
  const newest = releases.map(Number).sort((a, b) => b - a);
  const programs = newest.map((release) => join(DEBIAN_RELEASES, String(release), 'bin', name));
  return programs.find((program) => existsSync(program)) ?? name;
}
