// Removes everything that the set-up has created, also when containerd cannot start. Everything is
// identified by the directories, the socket or the network name of the set-up, so that nothing else
// is removed.
import { existsSync, readdirSync, readFileSync, rmSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { removePod } from './check.mjs';
import { callCri } from './cri.mjs';
import { networkName } from './files.mjs';
import { removeRules } from './firewall.mjs';
import { daemons, findPid, startDaemon, stopDaemon } from './processes.mjs';
import { attempt, run, waitFor } from './run.mjs';
import { readJson, SetupError } from './settings.mjs';

/**
 * Stops and deletes the whole set-up. The directory with the settings is deleted last, so that an
 * interrupted removal can be repeated.
 * @param say - Prints a line of progress.
 * @throws {@link SetupError} when `install` did not create the directories, or a mount is in use.
 */
export async function removeAll(settings, say) {
  if (!isOurs(settings)) {
    const existing = [settings.dir, settings.runDir].filter(existsSync);
    if (existing.length === 0) return say('there is nothing to remove');
    throw new SetupError(
      `${existing.join(' and ')} was not made by "install" (no ${settings.keptFile}), so it stays`,
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
 * Returns true when `install` has created the set-up: its settings file exists, or a process of the
 * set-up still runs although the file was deleted.
 */
function isOurs(settings) {
  const isRunning =
    daemons.some((daemon) => findPid(settings, daemon) !== undefined) ||
    listShims(settings).length > 0;
  return isRunning || readJson(settings.keptFile, undefined) !== undefined;
}

/**
 * Removes all pods through containerd, so that the network plugins release their addresses and
 * rules. Continues without when containerd cannot start.
 */
async function endPods(settings, say) {
  const [, containerd] = daemons;
  if (findPid(settings, containerd) === undefined && listTasks(settings).length === 0) return;
  try {
    await startDaemon(settings, containerd, say);
    const { items } = await callCri(settings.socket, 'ListPodSandbox', {});
    if (items.length > 0) say(`ending ${items.length} pod${items.length === 1 ? '' : 's'}`);
    for (const { id } of items) await removePod(settings.socket, id);
  } catch (reason) {
    say(`containerd cannot end the pods (${reason.message}); ending them without it`);
  }
}

/** Lists the containers that containerd has, or had when it was killed: a directory for each. */
function listTasks(settings) {
  const tasks = join(settings.stateDir, 'io.containerd.runtime.v2.task');
  return list(tasks).flatMap((namespace) =>
    list(join(tasks, namespace)).map((id) => ({ namespace, id, dir: join(tasks, namespace, id) })),
  );
}

/**
 * Removes what containerd has not removed: the processes and cgroups of each container, and its
 * shim.
 */
async function endLeftovers(settings, say) {
  const tasks = listTasks(settings);
  if (tasks.length > 0)
    say(`ending ${tasks.length} container${tasks.length === 1 ? '' : 's'} that were left`);
  const sockets = tasks.map(({ dir }) => shimSocket(dir)).filter((socket) => socket !== undefined);
  for (const { namespace, id } of tasks) {
    // containers that were not created through CRI, as with "ctr run", are in the default place of
    // runc
    for (const root of [settings.runcDir, '/run/containerd/runc']) {
      const dir = join(root, namespace);
      if (existsSync(join(dir, id))) attempt('runc', ['--root', dir, 'delete', '--force', id]);
    }
  }
  for (const pid of listShims(settings)) process.kill(pid, 'SIGKILL');
  await waitFor(`the shims of ${settings.socket} end`, () =>
    listShims(settings).length === 0 ? true : undefined,
  );
  for (const socket of sockets) rmSync(socket, { force: true });
  removeEmpty([
    ...tasks.map(({ namespace }) => join('/run/containerd/runc', namespace)),
    '/run/containerd/runc',
  ]);
  removeEmpty(cgroupParents());
}

/**
 * Returns the socket of the shim of a container, which is in a fixed directory of containerd;
 * undefined when the shim has no socket.
 */
function shimSocket(taskDir) {
  const file = join(taskDir, 'address');
  return existsSync(file) ? readFileSync(file, 'utf8').trim().replace('unix://', '') : undefined;
}

function listShims(settings) {
  return list('/proc').filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      return (
        /containerd-shim/.test(words[0]) && words[words.indexOf('-address') + 1] === settings.socket
      );
    } catch {
      return false; // the process has ended
    }
  });
}

/** Returns the parents that containerd creates for the cgroups of pods, in each hierarchy. */
const cgroupParents = () =>
  ['', ...list('/sys/fs/cgroup')].map((name) => join('/sys/fs/cgroup', name, 'k8s.io'));

/**
 * Unmounts network namespaces and layers of images, the innermost first.
 * @throws {@link SetupError} when a mount stays, because deleting the directory would delete its
 *   content.
 */
function unmountAll(settings) {
  for (const mountPoint of listMounts(settings)) attempt('umount', [mountPoint]);
  for (const mountPoint of listMounts(settings)) attempt('umount', ['--lazy', mountPoint]);
  const remaining = listMounts(settings);
  if (remaining.length > 0)
    throw new SetupError(
      `cannot unmount ${remaining.join(', ')}; end what uses it, then run "remove" again`,
    );
}

/** Lists the mounts below the directories of the set-up, the innermost first. */
function listMounts({ dir, runDir }) {
  const mountPoints = readFileSync('/proc/self/mountinfo', 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(' ')[4]);
  return mountPoints
    .filter((mountPoint) => [dir, runDir].some((top) => mountPoint.startsWith(`${top}/`)))
    .reverse();
}

/**
 * Deletes the results of the network plugins for pods of this network; all networks share a folder.
 */
function removeCniResults(settings) {
  const results = '/var/lib/cni/results';
  const prefix = `${networkName(settings)}-`;
  const ids = list(results)
    .filter((name) => name.startsWith(prefix))
    .map((name) => name.slice(prefix.length).split('-')[0]);
  const ownResults = list(results).filter(
    (name) => name.startsWith(prefix) || ids.some((id) => name === `cni-loopback-${id}-lo`),
  );
  for (const name of ownResults) rmSync(join(results, name));
}

/** Deletes directories that other programs may use as well; a directory with files stays. */
function removeEmpty(dirs) {
  for (const dir of dirs) {
    try {
      rmdirSync(dir);
    } catch (reason) {
      if (!['ENOENT', 'ENOTEMPTY', 'EBUSY', 'ENOTDIR'].includes(reason.code)) throw reason;
    }
  }
}

/** Returns the names in a directory; none when the directory does not exist. */
function list(dir) {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}
