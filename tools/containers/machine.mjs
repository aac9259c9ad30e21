// Checks, before anything is changed, that the machine can run the set-up.
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { refuseTakenPort } from './processes.mjs';
import { attempt } from './run.mjs';
import { readJson, SetupError } from './settings.mjs';

/** @throws {@link SetupError} with the remedy when pods cannot run on this machine. */
export async function checkMachine(settings) {
  if (process.platform !== 'linux')
    throw new SetupError(`containers need Linux; this is ${process.platform}`);
  refuseForeignDirectories(settings);
  refuseTakenBridge(settings);
  refuseTakenSubnet(settings);
  refuseMissingOverlay(settings);
  await refuseTakenPort(settings);
}

/** Refuses directories that `install` did not create, because `remove` would delete them. */
function refuseForeignDirectories(settings) {
  if (readJson(settings.keptFile, undefined) !== undefined) return;
  for (const [flag, dir] of Object.entries({ dir: settings.dir, 'run-dir': settings.runDir })) {
    if (existsSync(dir)) {
      throw new SetupError(
        `${dir} exists and was not made by "install"; choose another --${flag}, or delete it`,
      );
    }
  }
}

/**
 * Refuses a network interface that exists before the first `install`, because `remove` would delete
 * it.
 */
function refuseTakenBridge({ keptFile, bridge }) {
  if (readJson(keptFile, undefined) !== undefined || !existsSync(`/sys/class/net/${bridge}`))
    return;
  throw new SetupError(
    `there is a network interface ${bridge} already; choose another with --bridge NAME`,
  );
}

/** Converts an IPv4 address to a number. */
const toNumber = (address) => address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);

/** Refuses a subnet to which the machine has a route, because the pods would hide that network. */
function refuseTakenSubnet({ subnet, bridge }) {
  const { stdout } = attempt('ip', [
    '-j',
    '-4',
    'route',
    'show',
    'table',
    'all',
    'type',
    'unicast',
  ]);
  const [address, bits] = subnet.split('/');
  for (const { dst, dev } of JSON.parse(stdout || '[]')) {
    const [other, otherBits = 32] = dst === 'default' ? ['0.0.0.0', 0] : dst.split('/');
    const size = 2 ** (32 - Math.min(Number(bits), Number(otherBits)));
    const overlaps = Math.floor(toNumber(address) / size) === Math.floor(toNumber(other) / size);
    if (overlaps && dst !== 'default' && dev !== bridge) {
      throw new SetupError(
        `the subnet ${subnet} is taken: ${dst} goes to ${dev}; choose another with --subnet 10.N.0.0/16`,
      );
    }
  }
}

/**
 * Mounts an overlayfs where the images will be: a kernel may support overlayfs, but not on top of
 * another overlayfs.
 */
function refuseMissingOverlay(settings) {
  const parent = findExistingParent(dirname(settings.dir));
  const scratch = mkdtempSync(join(parent, '.cloudless-overlay-'));
  const [lower, upper, work, merged] = ['lower', 'upper', 'work', 'merged'].map((name) =>
    join(scratch, name),
  );
  try {
    for (const dir of [lower, upper, work, merged]) mkdirSync(dir);
    const layers = `lowerdir=${lower},upperdir=${upper},workdir=${work}`;
    const { ok, stderr } = attempt('mount', ['-t', 'overlay', 'overlay', '-o', layers, merged]);
    if (!ok) {
      throw new SetupError(
        `no overlayfs below ${parent}: ${stderr.split('\n')[0]} Load it with "modprobe overlay"; inside a container choose a --dir on a volume`,
      );
    }
    attempt('umount', [merged]);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Returns the directory or its first parent that exists. */
function findExistingParent(dir) {
  return existsSync(dir) ? dir : findExistingParent(dirname(dir));
}
