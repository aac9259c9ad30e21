// Installs the Debian packages that are missing, and removes them again. Never changes or removes a
// package that was installed before.
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { attempt, env, hasProgram, run } from './run.mjs';
import { readJson, SetupError } from './settings.mjs';

/**
 * The programs that the set-up needs, and the package of each. A program that is installed is used,
 * whatever its origin.
 */
const needs = [
  {
    name: 'containerd',
    package: 'containerd',
    isInstalled: () => hasProgram('containerd') && hasProgram('containerd-shim-runc-v2'),
  },
  { name: 'runc', package: 'runc', isInstalled: () => hasProgram('runc') },
  {
    name: 'CNI plugins',
    package: 'containernetworking-plugins',
    isInstalled: () => cniDir() !== undefined,
  },
  {
    name: 'docker-registry',
    package: 'docker-registry',
    isInstalled: () => hasProgram('docker-registry'),
  },
  { name: 'skopeo', package: 'skopeo', isInstalled: () => hasProgram('skopeo') },
  { name: 'umoci', package: 'umoci', isInstalled: () => hasProgram('umoci') },
  { name: 'iptables', package: 'iptables', isInstalled: () => hasProgram('iptables') },
  { name: 'iproute2', package: 'iproute2', isInstalled: () => hasProgram('ip') },
];
/** Script that Debian packages run before they start a service. */
const POLICY = '/usr/sbin/policy-rc.d';

/**
 * Returns the directory of the network plugins: that of Debian, or that of other distributions of
 * containerd. Undefined when the plugins are not installed.
 */
export function cniDir() {
  const plugins = ['bridge', 'host-local', 'portmap', 'loopback'];
  return ['/usr/lib/cni', '/opt/cni/bin'].find((dir) =>
    plugins.every((plugin) => existsSync(join(dir, plugin))),
  );
}

/** Returns the needs whose programs are not installed. */
export const findMissing = (needed = needs) => needed.filter((need) => !need.isInstalled());

/**
 * Installs the missing packages. Records which packages are added, dependencies included, before
 * anything is installed, so that {@link removePackages} also finds the packages of an interrupted
 * install.
 * @param say - Prints a line of progress.
 * @param options - For tests: other needs, and another path of the policy script.
 * @throws {@link SetupError} when a package cannot be installed.
 */
export function installPackages(settings, say, { needs: needed = needs, policy = POLICY } = {}) {
  const before = listInstalled();
  const packages = findMissing(needed).map((need) => need.package);
  if (settings.busybox !== 'package') copyBusybox(settings);
  if (packages.length === 0 && existsSync(getBusyboxPath(settings))) return;
  if (!hasProgram('apt-get')) {
    const names = findMissing(needed).map((need) => need.name);
    throw new SetupError(
      `there is no apt-get here, so nothing can be installed; install ${[...names, 'a static busybox'].join(', ')} yourself` +
        ` (the busybox as ${getBusyboxPath(settings)}), then run this again`,
    );
  }
  run('apt-get', ['-q', 'update']);
  if (packages.length > 0) {
    say(`installing ${packages.join(', ')}`);
    const recorded = listAddedPackages(settings);
    const trial = run('apt-get', ['-s', ...installFlags, ...packages]);
    recordPackages(settings, [
      ...recorded,
      ...[...trial.matchAll(/^Inst (\S+)/gm)].map(([, name]) => name),
    ]);
    try {
      withoutStarting(() => aptInstall(packages), policy);
    } finally {
      const after = listInstalled();
      recordPackages(
        settings,
        [...recorded, ...after].filter(
          (name) => after.has(name) && (recorded.includes(name) || !before.has(name)),
        ),
      );
    }
  }
  fetchBusybox(settings);
  const stillMissing = findMissing(needed).map((need) => need.name);
  if (stillMissing.length > 0)
    throw new SetupError(
      `still missing after apt-get install ${packages.join(' ')}: ${stillMissing.join(', ')}`,
    );
}

/**
 * Returns the packages that `install` has added and no removal has removed. An older version of
 * this set-up recorded them in its settings file.
 */
export function listAddedPackages({ packagesFile, keptFile }) {
  return [
    ...new Set([packagesFile, keptFile].flatMap((file) => readJson(file, {}).packages ?? [])),
  ];
}

/**
 * Records the added packages outside of the directory, so that the record outlives `remove`.
 */
export function keepPackages(settings) {
  recordPackages(settings, listAddedPackages(settings));
}

/** Writes the record of the added packages; deletes the record of none. */
function recordPackages({ packagesFile }, names) {
  if (names.length === 0) rmSync(packagesFile, { force: true });
  else
    writeFileSync(
      packagesFile,
      `${JSON.stringify({ packages: [...new Set(names)].sort() }, null, 2)}\n`,
    );
}

/**
 * Flags of an install. `--no-remove`: apt-get fails instead of removing a conflicting package of
 * the user, such as containerd.io of Docker.
 */
const installFlags = [
  'install',
  '-q',
  '-y',
  '--no-install-recommends',
  '--no-remove',
  '--no-upgrade',
];

function aptInstall(names) {
  run('apt-get', [...installFlags, ...names], {
    env: { ...env, DEBIAN_FRONTEND: 'noninteractive' },
  });
}

/**
 * Runs an action while Debian packages do not start their services: the packages would start a
 * containerd and a registry with default settings.
 */
function withoutStarting(action, policy) {
  if (existsSync(policy)) return action();
  writeFileSync(policy, '#!/bin/sh\nexit 101\n');
  chmodSync(policy, 0o755);
  try {
    return action();
  } finally {
    rmSync(policy);
  }
}

/** Returns the path of the static busybox for the images. */
export const getBusyboxPath = (settings) => join(settings.dir, 'busybox');

/** @throws {@link SetupError} when the file of the setting cannot be copied. */
function copyBusybox(settings) {
  try {
    copyFileSync(settings.busybox, getBusyboxPath(settings));
    chmodSync(getBusyboxPath(settings), 0o755);
  } catch (reason) {
    throw new SetupError(`--busybox cannot be copied: ${reason.message}`);
  }
}

/**
 * Extracts busybox from its package, because installing it would replace the busybox of the user.
 */
function fetchBusybox(settings) {
  const target = getBusyboxPath(settings);
  if (existsSync(target)) return;
  const scratch = join(settings.dir, 'busybox-package');
  rmSync(scratch, { recursive: true, force: true });
  mkdirSync(scratch, { recursive: true });
  try {
    run('apt-get', ['-q', 'download', 'busybox-static'], { cwd: scratch });
    const file = readdirSync(scratch).find((name) => name.endsWith('.deb'));
    run('dpkg-deb', ['-x', file, 'content'], { cwd: scratch });
    const busybox = ['bin/busybox', 'usr/bin/busybox']
      .map((path) => join(scratch, 'content', path))
      .find(existsSync);
    if (busybox === undefined) throw new SetupError(`${file} has no busybox in bin or usr/bin`);
    run('install', ['-m', '0755', busybox, target]);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Returns the names of all installed packages. */
function listInstalled() {
  const { stdout } = attempt('dpkg-query', ['-W', '-f', '${db:Status-Status} ${Package}\n']);
  const lines = stdout.split('\n').filter((line) => line.startsWith('installed '));
  return new Set(lines.map((line) => line.slice('installed '.length)));
}

/**
 * Removes the packages that {@link installPackages} added. A package that a later package needs
 * stays, and stays recorded.
 * @returns The names of the removed and of the kept packages.
 */
export function removePackages(settings, say) {
  const installed = listInstalled();
  const added = listAddedPackages(settings).filter((name) => installed.has(name));
  const dependents = new Map(
    findDependents(added, added).length === 0
      ? []
      : added.map((name) => [name, findDependents([name], added)]),
  );
  const kept = added.filter((name) => (dependents.get(name) ?? []).length > 0).sort();
  const removed = added.filter((name) => !kept.includes(name)).sort();
  if (removed.length > 0) {
    say(`removing the packages ${removed.join(', ')}`);
    run('apt-get', ['-q', '-y', 'purge', ...removed], {
      env: { ...env, DEBIAN_FRONTEND: 'noninteractive' },
    });
  }
  recordPackages(settings, kept);
  const users = [...new Set(kept.flatMap((name) => dependents.get(name)))].sort();
  if (kept.length > 0)
    say(
      `the packages ${kept.join(', ')} stay: ${users.join(', ')} ${users.length === 1 ? 'needs' : 'need'} them`,
    );
  return { removed, kept };
}

/**
 * Returns the packages that apt-get would also remove or replace if `names` were purged.
 * @param removable - Packages that are not returned.
 */
function findDependents(names, removable) {
  if (names.length === 0) return [];
  const plan = run('apt-get', ['-s', '-q', 'purge', ...names]);
  return [...plan.matchAll(/^(?:Purg|Remv|Inst) (\S+)/gm)]
    .map(([, name]) => name)
    .filter((name) => !removable.includes(name));
}
