// Copies packages with native code into the folder of an npm package, so that one archive installs
// without a registry and without install scripts.
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { root } from '../setup.mjs';
import { requireLockedVersions } from './locked-versions.mjs';

/** Packages that are only used to build or to test a native package, or that have a fallback. */
const NOT_NEEDED = new Set(['node-addon-api', 'msgpackr-extract']);

/** Files that a running program does not read. */
const LEFT_OUT =
  /(?:^|\/)\.|\.(?:map|gyp|d\.c?ts|md)$|(?:^|\/)(?:src|dependencies|dict|bin|tests?|assets|benchmark|node_modules)(?:\/|$)|rollup\.config\.js$|(?:^|\/)test[^/]*\.js$|\.min\.js$/;

const readManifest = (folder) => JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));

/** @returns the folder of an installed package, as the package at `from` finds it; or undefined */
function findFolder(name, from) {
  for (let folder = from; ; folder = dirname(folder)) {
    const candidate = join(folder, 'node_modules', name);
    if (existsSync(join(candidate, 'package.json'))) return candidate;
    if (folder === dirname(folder)) return undefined;
  }
}

/**
 * Copies a package and all that it needs into `<stage>/node_modules`. Only the binaries of installed
 * platforms are copied: those of the machine that packs. The copies have no install scripts, and
 * name only packages that are copied too, so that npm asks no registry.
 * @param stage - the folder of the npm package.
 * @param name - the package, as `from` depends on it.
 * @param from - the folder, relative to the root, of the library that depends on the package.
 * @param keepFile - leaves out a file of any of the packages where it returns false.
 * @throws Error when a version is not that of the lock file.
 * @returns the name and version of each copied package, the first one that of `name`; and `cpus`,
 *   the processors that the binaries are for.
 */
export function copyNativePackage({ stage, name, from, keepFile = () => true }) {
  const copied = new Map();
  const cpus = new Set();
  const copy = (wanted, source) => {
    requireLockedVersions([`${relative(root, source)}/package.json`]);
    const manifest = readManifest(source);
    copied.set(wanted, manifest.version);
    const named = { ...manifest.dependencies, ...manifest.optionalDependencies };
    const found = Object.keys(named)
      .filter((dependency) => !NOT_NEEDED.has(dependency))
      .map((dependency) => [dependency, findFolder(dependency, source)]);
    const missing = found.filter(
      ([dependency, folder]) => folder === undefined && dependency in (manifest.dependencies ?? {}),
    );
    if (missing.length > 0)
      throw new Error(`${wanted} needs ${missing[0][0]}, which is not installed: run "npm ci"`);
    const installed = found.filter(([, folder]) => folder !== undefined);
    const target = join(stage, 'node_modules', wanted);
    mkdirSync(target, { recursive: true });
    cpSync(source, target, {
      recursive: true,
      filter: (path) => {
        const file = path.slice(source.length + 1);
        return file === '' || /^LICEN[CS]E/i.test(file) || (!LEFT_OUT.test(file) && keepFile(file));
      },
    });
    const { version, license, type, main, exports, module, os, cpu, libc } = manifest;
    for (const processor of cpu ?? []) cpus.add(processor);
    const dependencies = Object.fromEntries(
      installed.map(([dependency, folder]) => [dependency, readManifest(folder).version]),
    );
    writeFileSync(
      join(target, 'package.json'),
      `${JSON.stringify({ name: wanted, version, license, type, main, module, exports, os, cpu, libc, dependencies }, undefined, 2)}\n`,
    );
    for (const [dependency, folder] of installed) {
      const present = copied.get(dependency);
      if (present === undefined) copy(dependency, folder);
      else if (present !== dependencies[dependency])
        throw new Error(
          `${dependency} is needed in versions ${present} and ${dependencies[dependency]}`,
        );
    }
  };
  const require = createRequire(join(root, from, 'package.json'));
  const source = findFolder(name, dirname(require.resolve('./package.json')));
  if (source === undefined) throw new Error(`${name} is not installed: run "npm ci"`);
  copy(name, source);
  return { packages: [...copied], cpus: [...cpus] };
}
