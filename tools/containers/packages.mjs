// The Debian packages that are missing: installed without touching any that is there.
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { attempt, env, has, run } from './run.mjs';
import { SetupError } from './settings.mjs';

/** What is needed, and which package brings it. A program that is there is used, wherever it came from. */
const needs = [
  { name: 'containerd', package: 'containerd', there: () => has('containerd') && has('containerd-shim-runc-v2') },
  { name: 'runc', package: 'runc', there: () => has('runc') },
  { name: 'CNI plugins', package: 'containernetworking-plugins', there: () => cniDir() !== undefined },
  { name: 'docker-registry', package: 'docker-registry', there: () => has('docker-registry') },
  { name: 'skopeo', package: 'skopeo', there: () => has('skopeo') },
  { name: 'umoci', package: 'umoci', there: () => has('umoci') },
  { name: 'iptables', package: 'iptables', there: () => has('iptables') },
  { name: 'iproute2', package: 'iproute2', there: () => has('ip') },
];
const POLICY = '/usr/sbin/policy-rc.d';

/** The directory with the network plugins: Debian's, or the one other distributions of containerd use. */
export function cniDir() {
  const wanted = ['bridge', 'host-local', 'portmap', 'loopback'];
  return ['/usr/lib/cni', '/opt/cni/bin'].find((dir) => wanted.every((plugin) => existsSync(join(dir, plugin))));
}

/** What is needed and not there, by name. */
export const missing = () => needs.filter((need) => !need.there());

/**
 * Installs what is missing.
 * @returns the names of the packages that were not there before, those they depend on included.
 */
export function installPackages(settings, say) {
  const before = installed();
  const wanted = missing().map((need) => need.package);
  if (wanted.length === 0 && existsSync(busyboxOf(settings))) return [];
  if (!has('apt-get')) {
    const names = missing().map((need) => need.name);
    throw new SetupError(
      `there is no apt-get here, so nothing can be installed; install ${[...names, 'a static busybox'].join(', ')} yourself` +
        ` (the busybox as ${busyboxOf(settings)}), then run this again`,
    );
  }
  run('apt-get', ['-q', 'update']);
  if (wanted.length > 0) {
    say(`installing ${wanted.join(', ')}`);
    withoutStarting(() => aptInstall(wanted));
  }
  fetchBusybox(settings);
  const still = missing().map((need) => need.name);
  if (still.length > 0) throw new SetupError(`still missing after apt-get install ${wanted.join(' ')}: ${still.join(', ')}`);
  return [...installed()].filter((name) => !before.has(name));
}

/** `--no-remove`: a package of the user's that stands in the way, like Docker's containerd.io, stays, and apt-get says so. */
function aptInstall(names) {
  const flags = ['-q', '-y', '--no-install-recommends', '--no-remove', '--no-upgrade'];
  run('apt-get', ['install', ...flags, ...names], { env: { ...env, DEBIAN_FRONTEND: 'noninteractive' } });
}

/** The packages would start a containerd and a registry of their own with default settings; nobody asked for these. */
function withoutStarting(action) {
  if (existsSync(POLICY)) return action();
  writeFileSync(POLICY, '#!/bin/sh\nexit 101\n');
  chmodSync(POLICY, 0o755);
  try {
    return action();
  } finally {
    rmSync(POLICY);
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
    const found = ['bin/busybox', 'usr/bin/busybox'].map((path) => join(scratch, 'content', path)).find(existsSync);
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

/** Takes away again what {@link installPackages} brought, as far as nothing else needs it by now. */
export function removePackages(names, say) {
  const there = names.filter((name) => installed().has(name));
  if (there.length === 0) return;
  const plan = run('apt-get', ['-s', '-q', 'purge', ...there]);
  const others = [...plan.matchAll(/^(?:Purg|Remv) (\S+)/gm)].map((match) => match[1]).filter((name) => !there.includes(name));
  if (others.length > 0) throw new SetupError(`the packages stay: ${others.join(', ')} came later and need them`);
  say(`removing the packages ${there.join(', ')}`);
  run('apt-get', ['-q', '-y', 'purge', ...there], { env: { ...env, DEBIAN_FRONTEND: 'noninteractive' } });
}
