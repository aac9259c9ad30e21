// Checks that what is packed are the versions of package-lock.json, and not what an "npm install"
// or a link by hand has left in node_modules.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../setup.mjs';

/** Path of a package in node_modules, relative to the root of the repository. */
const PACKAGE_FOLDER = /^((?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+)\//;

/**
 * Requires that the packages of some files have the versions of the lock file. Files outside of
 * node_modules are left out.
 * @param files - paths relative to the root of the repository, with "/".
 * @param options - `readVersion` and `locked` for tests: the installed version of a folder, and the
 *   packages of the lock file by folder.
 * @throws Error that names every package with another version, and the command that mends it.
 */
export function requireLockedVersions(
  files,
  { readVersion = readInstalledVersion, locked = readLockFile() } = {},
) {
  const folders = new Set(files.flatMap((file) => PACKAGE_FOLDER.exec(file)?.[1] ?? []));
  const problems = [...folders].sort().flatMap((folder) => {
    const installed = readVersion(folder);
    const wanted = locked[folder]?.version;
    return installed === wanted ? [] : [`${folder} has ${installed}, not ${wanted ?? 'an entry'}`];
  });
  if (problems.length > 0)
    throw new Error(
      `installed packages are not those of package-lock.json: ${problems.join('; ')}; run "npm ci"`,
    );
}

function readInstalledVersion(folder) {
  return JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')).version;
}

function readLockFile() {
  return JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages;
}
