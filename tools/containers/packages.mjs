// The Debian packages that are missing: installed without touching any that is there.
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { attempt, env, has, run } from './run.mjs';
import { readJson, SetupError } from './settings.mjs';

/**
 * What is needed, and which package brings it. A program that is there is used, wherever it came
 * from.
 */
const needs = [
  {
    name: 'containerd',
    package: 'containerd',
    there: () => has('containerd') && has('containerd-shim-runc-v2'),
  },
  { name: 'runc', package: 'runc', there: () => has('runc') },
  {
    name: 'CNI plugins',
    package: 'containernetworking-plugins',
    there: () => cniDir() !== undefined,
  },
  { name: 'docker-registry', package: 'docker-registry', there: () => has('docker-registry') },
  { name: 'skopeo', package: 'skopeo', there: () => has('skopeo') },
  { name: 'umoci', package: 'umoci', there: () => has('umoci') },
  { name: 'iptables', package: 'iptables', there: () => has('iptables') },
  { name: 'iproute2', package: 'iproute2', there: () => has('ip') },
];
const POLICY = '/usr/sbin/policy-rc.d';

/**
 * The directory with the network plugins: Debian's, or the one other distributions of containerd
 * use.
 */
export function cniDir() {
  const wanted = ['bridge', 'host-local', 'portmap', 'loopback'];
  return ['/usr/lib/cni', '/opt/cni/bin'].find((dir) =>
    wanted.every((plugin) => existsSync(join(dir, plugin))),
  );
}

/** What is needed and not there, by name. */
export const missing = (needed = needs) => needed.filter((need) => !need.there());

/**
 * Installs what is missing, and notes which packages were not there before, those they depend on
 * included: before anything is installed, so that an install that is cut short leaves none that
 * nobody knows of.
 */
export function installPackages(settings, say, { needs: needed = needs, policy = POLICY } = {}) {
  const before = installed();
  const wanted = missing(needed).map((need) => need.package);
  if (wanted.length === 0 && existsSync(busyboxOf(settings))) return;
  if (!has('apt-get')) {
    const names = missing(needed).map((need) => need.name);
    throw new SetupError(
      `there is no apt-get here, so nothing can be installed; install ${[...names, 'a static busybox'].join(', ')} yourself` +
        ` (the busybox as ${busyboxOf(settings)}), then run this again`,
    );
  }
  run('apt-get', ['-q', 'update']);
  if (wanted.length > 0) {
    say(`installing ${wanted.join(', ')}`);
    const known = brought(settings);
    const trial = run('apt-get', ['-s', ...installFlags, ...wanted]);
    notePackages(settings, [
      ...known,
      ...[...trial.matchAll(/^Inst (\S+)/gm)].map(([, name]) => name),
    ]);
    try {
      withoutStarting(() => aptInstall(wanted), policy);
    } finally {
      const now = installed();
      notePackages(
        settings,
        [...known, ...now].filter(
          (name) => now.has(name) && (known.includes(name) || !before.has(name)),
        ),
      );
    }
  }
  fetchBusybox(settings);
  const still = missing(needed).map((need) => need.name);
  if (still.length > 0)
    throw new SetupError(
      `still missing after apt-get install ${wanted.join(' ')}: ${still.join(', ')}`,
    );
}

/**
 * The packages that installs of this set-up brought and no removal took away; an older install kept
 * them with its settings.
 */
export function brought({ packagesFile, keptFile }) {
  return [
    ...new Set([packagesFile, keptFile].flatMap((file) => readJson(file, {}).packages ?? [])),
  ];
}

/**
 * Keeps what is known of packages beyond the removal of the directory: whoever installs again finds
 * them there.
 */
export function keepPackages(settings) {
  notePackages(settings, brought(settings));
}

function notePackages({ packagesFile }, names) {
  if (names.length === 0) rmSync(packagesFile, { force: true });
  else
    writeFileSync(
      packagesFile,
      `${JSON.stringify({ packages: [...new Set(names)].sort() }, null, 2)}\n`,
    );
}

/**
 * `--no-remove`: a package of the user's that stands in the way, like Docker's containerd.io,
 * stays, and apt-get says so.
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
 * The packages would start a containerd and a registry of their own with default settings; nobody
 * asked for these.
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

/** The static busybox the images are made of. */
export const busyboxOf = (settings) => join(settings.dir, 'busybox');

/** Taken out of its package: installing it would drive out the user's own busybox. */
function fetchBusybox(settings) {
  const target = busyboxOf(settings);
  if (existsSync(target)) return;
  const scratch = join(settings.dir, 'busybox-package');
  rmSync(scratch, { recursive: true, force: true });
  mkdirSync(scratch, { recursive: true });
  try {
    run('apt-get', ['-q', 'download', 'busybox-static'], { cwd: scratch });
    const file = readdirSync(scratch).find((name) => name.endsWith('.deb'));
    run('dpkg-deb', ['-x', file, 'content'], { cwd: scratch });
    const found = ['bin/busybox', 'usr/bin/busybox']
      .map((path) => join(scratch, 'content', path))
      .find(existsSync);
    if (found === undefined) throw new SetupError(`${file} has no busybox in bin or usr/bin`);
    run('install', ['-m', '0755', found, target]);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function installed() {
  const { stdout } = attempt('dpkg-query', ['-W', '-f', '${db:Status-Status} ${Package}\n']);
  const lines = stdout.split('\n').filter((line) => line.startsWith('installed '));
  return new Set(lines.map((line) => line.slice('installed '.length)));
}

/**
 * Takes away again what {@link installPackages} brought. A package stays, and is known on, while
 * others that came later need it.
 * @returns the names of both.
 */
export function removePackages(settings, say) {
  const here = installed();
  const there = brought(settings).filter((name) => here.has(name));
  const needing = new Map(
    others(there, there).length === 0 ? [] : there.map((name) => [name, others([name], there)]),
  );
  const kept = there.filter((name) => (needing.get(name) ?? []).length > 0).sort();
  const removed = there.filter((name) => !kept.includes(name)).sort();
  if (removed.length > 0) {
    say(`removing the packages ${removed.join(', ')}`);
    run('apt-get', ['-q', '-y', 'purge', ...removed], {
      env: { ...env, DEBIAN_FRONTEND: 'noninteractive' },
    });
  }
  notePackages(settings, kept);
  const users = [...new Set(kept.flatMap((name) => needing.get(name)))].sort();
  if (kept.length > 0)
    say(
      `the packages ${kept.join(', ')} stay: ${users.join(', ')} ${users.length === 1 ? 'needs' : 'need'} them`,
    );
  return { removed, kept };
}

/**
 * What apt-get would remove or put in their place, beside those that may go, were these packages
 * purged.
 */
function others(names, mayGo) {
  if (names.length === 0) return [];
  const plan = run('apt-get', ['-s', '-q', 'purge', ...names]);
  return [...plan.matchAll(/^(?:Purg|Remv|Inst) (\S+)/gm)]
    .map(([, name]) => name)
    .filter((name) => !mayGo.includes(name));
}
