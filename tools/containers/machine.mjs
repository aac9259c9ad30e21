// What the machine must be able to do, said before anything is changed.
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { refuseTakenPort } from './processes.mjs';
import { attempt } from './run.mjs';
import { readJson, SetupError } from './settings.mjs';

/** @throws {@link SetupError} with what to do, when pods cannot run here. */
export async function checkMachine(settings) {
  if (process.platform !== 'linux')
    throw new SetupError(`containers need Linux; this is ${process.platform}`);
  refuseForeignDirectories(settings);
  refuseTakenBridge(settings);
  refuseTakenSubnet(settings);
  refuseMissingOverlay(settings);
  await refuseTakenPort(settings);
}

/** A directory with something else in it is never taken over, as `remove` would delete that. */
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
 * A bridge of that name that is there already belongs to someone else, and `remove` would delete
 * it.
 */
function refuseTakenBridge({ keptFile, bridge }) {
  if (readJson(keptFile, undefined) !== undefined || !existsSync(`/sys/class/net/${bridge}`))
    return;
  throw new SetupError(
    `there is a network interface ${bridge} already; choose another with --bridge NAME`,
  );
}

const toNumber = (address) => address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);

/** Pods with addresses of a network that the machine reaches already would cut that network off. */
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
 * Tried out where the images will be: a kernel may have overlayfs and refuse it on top of another
 * one.
 */
function refuseMissingOverlay(settings) {
  const parent = firstThere(dirname(settings.dir));
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

function firstThere(dir) {
  return existsSync(dir) ? dir : firstThere(dirname(dir));
}
