// Takes everything away that the set-up brought, also when containerd is broken or gone, and
// nothing else: what is removed is known by the own directories, the own socket, or the name of the
// own network.
import { existsSync, readdirSync, readFileSync, rmSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { removePod } from './check.mjs';
import { callCri } from './cri.mjs';
import { networkName } from './files.mjs';
import { removeRules } from './firewall.mjs';
import { daemons, pidOf, startDaemon, stopDaemon } from './processes.mjs';
import { attempt, run, until } from './run.mjs';
import { readJson, SetupError } from './settings.mjs';

/**
 * Ends and deletes it all. The directory with the settings goes last, so that a removal that was
 * cut short can be repeated.
 */
export async function removeAll(settings, say) {
  if (!isOurs(settings)) {
    const there = [settings.dir, settings.runDir].filter(existsSync);
    if (there.length === 0) return say('there is nothing to remove');
    throw new SetupError(
      `${there.join(' and ')} was not made by "install" (no ${settings.keptFile}), so it stays`,
    );
  }
  await endPods(settings, say);
  for (const daemon of daemons.toReversed()) await stopDaemon(settings, daemon, say);
  await endLeftovers(settings, say);
  unmountAll(settings);
  removeRules(networkName(settings));
  if (existsSync(`/sys/class/net/${settings.bridge}`))
    run('ip', ['link', 'delete', settings.bridge]);
  removeCniResults(settings);
  removeEmpty(['/run/containerd/s', '/run/containerd', '/var/lib/cni/results', '/var/lib/cni']);
  for (const dir of [settings.runDir, settings.dir]) rmSync(dir, { recursive: true, force: true });
  say(`removed ${settings.dir} and ${settings.runDir}`);
}

/**
 * By the file `install` leaves; or, where somebody deleted that, by what still runs from these
 * directories.
 */
function isOurs(settings) {
  const runs =
    daemons.some((daemon) => pidOf(settings, daemon) !== undefined) || shims(settings).length > 0;
  return runs || readJson(settings.keptFile, undefined) !== undefined;
}

/**
 * The orderly way: containerd ends each pod and the network plugins give back its address and its
 * rules.
 */
async function endPods(settings, say) {
  const [, containerd] = daemons;
  if (pidOf(settings, containerd) === undefined && taskDirs(settings).length === 0) return;
  try {
    await startDaemon(settings, containerd, say);
    const { items } = await callCri(settings.socket, 'ListPodSandbox', {});
    if (items.length > 0) say(`ending ${items.length} pod${items.length === 1 ? '' : 's'}`);
    for (const { id } of items) await removePod(settings.socket, id);
  } catch (reason) {
    say(`containerd cannot end the pods (${reason.message}); ending them without it`);
  }
}

/** The containers containerd has, or had when it was killed: one directory each, by namespace. */
function taskDirs(settings) {
  const tasks = join(settings.stateDir, 'io.containerd.runtime.v2.task');
  return list(tasks).flatMap((namespace) =>
    list(join(tasks, namespace)).map((id) => ({ namespace, id, dir: join(tasks, namespace, id) })),
  );
}

/**
 * The other way: the processes of each container, its cgroups, and the shim that looks after it.
 */
async function endLeftovers(settings, say) {
  const tasks = taskDirs(settings);
  if (tasks.length > 0)
    say(`ending ${tasks.length} container${tasks.length === 1 ? '' : 's'} that were left`);
  const sockets = tasks.map(({ dir }) => shimSocket(dir)).filter((socket) => socket !== undefined);
  for (const { namespace, id } of tasks) {
    // What did not come through CRI, like "ctr run", is in runc's usual place.
    for (const root of [settings.runcDir, '/run/containerd/runc']) {
      const dir = join(root, namespace);
      if (existsSync(join(dir, id))) attempt('runc', ['--root', dir, 'delete', '--force', id]);
    }
  }
  for (const pid of shims(settings)) process.kill(pid, 'SIGKILL');
  await until(`the shims of ${settings.socket} end`, () =>
    shims(settings).length === 0 ? true : undefined,
  );
  for (const socket of sockets) rmSync(socket, { force: true });
  removeEmpty([
    ...tasks.map(({ namespace }) => join('/run/containerd/runc', namespace)),
    '/run/containerd/runc',
  ]);
  removeEmpty(cgroupParents());
}

/**
 * Where a shim listens, which is not below our directories: containerd has a fixed place for that.
 */
function shimSocket(taskDir) {
  const file = join(taskDir, 'address');
  return existsSync(file) ? readFileSync(file, 'utf8').trim().replace('unix://', '') : undefined;
}

function shims(settings) {
  return list('/proc').filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      return (
        /containerd-shim/.test(words[0]) && words[words.indexOf('-address') + 1] === settings.socket
      );
    } catch {
      return false; // it ended meanwhile
    }
  });
}

/** containerd puts the cgroups of pods that name no parent below this one, in each hierarchy. */
const cgroupParents = () =>
  ['', ...list('/sys/fs/cgroup')].map((name) => join('/sys/fs/cgroup', name, 'k8s.io'));

/**
 * Network namespaces and layers of images, the innermost first. @throws {@link SetupError} rather
 * than delete through a mount.
 */
function unmountAll(settings) {
  for (const place of mountsBelow(settings)) attempt('umount', [place]);
  for (const place of mountsBelow(settings)) attempt('umount', ['--lazy', place]);
  const left = mountsBelow(settings);
  if (left.length > 0)
    throw new SetupError(
      `cannot unmount ${left.join(', ')}; end what uses it, then run "remove" again`,
    );
}

function mountsBelow({ dir, runDir }) {
  const places = readFileSync('/proc/self/mountinfo', 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(' ')[4]);
  return places
    .filter((place) => [dir, runDir].some((top) => place.startsWith(`${top}/`)))
    .reverse();
}

/** The network plugins keep what they did for each pod in a place that all networks share. */
function removeCniResults(settings) {
  const results = '/var/lib/cni/results';
  const prefix = `${networkName(settings)}-`;
  const ids = list(results)
    .filter((name) => name.startsWith(prefix))
    .map((name) => name.slice(prefix.length).split('-')[0]);
  const ours = list(results).filter(
    (name) => name.startsWith(prefix) || ids.some((id) => name === `cni-loopback-${id}-lo`),
  );
  for (const name of ours) rmSync(join(results, name));
}

/** Places that others may use as well: they stay as long as anything is in them. */
function removeEmpty(dirs) {
  for (const dir of dirs) {
    try {
      rmdirSync(dir);
    } catch (reason) {
      if (!['ENOENT', 'ENOTEMPTY', 'EBUSY', 'ENOTDIR'].includes(reason.code)) throw reason;
    }
  }
}

function list(dir) {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}
