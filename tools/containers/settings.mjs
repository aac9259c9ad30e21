// The settings of the set-up and the paths that follow from them. `install` keeps its settings in
// the directory, so that later commands need only `--dir`.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { parseArgs } from 'node:util';

/**
 * An error that the user can correct: invalid settings, or a property of the machine. Printed
 * without a stack.
 */
export class SetupError extends Error {}

/** Environment variable, default and form of each setting; the flag follows from the name. */
const options = {
  dir: {
    env: 'CLOUDLESS_CONTAINERS_DIR',
    default: '/var/lib/cloudless-containers',
    form: /^\/[\w./-]+[\w-]$/,
  },
  runDir: {
    env: 'CLOUDLESS_CONTAINERS_RUN_DIR',
    default: '/run/cloudless-containers',
    form: /^\/[\w./-]+[\w-]$/,
  },
  registry: {
    env: 'CLOUDLESS_CONTAINERS_REGISTRY',
    default: '127.0.0.1:5000',
    form: /^127(\.\d{1,3}){3}:\d{1,5}$/,
  },
  // Linux allows 15 characters in the name of a network interface
  bridge: { env: 'CLOUDLESS_CONTAINERS_BRIDGE', default: 'cloudless0', form: /^[\w-]{1,15}$/ },
  subnet: {
    env: 'CLOUDLESS_CONTAINERS_SUBNET',
    default: '10.231.0.0/16',
    form: /^\d{1,3}(\.\d{1,3}){3}\/\d{1,2}$/,
  },
  // the static busybox of the images: from its Debian package, or a file
  busybox: {
    env: 'CLOUDLESS_CONTAINERS_BUSYBOX',
    default: 'package',
    form: /^(package|\/[\w./-]+)$/,
  },
};
/** Returns the flag of a setting without dashes, such as `run-dir`. */
const toFlag = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
/** Name of the settings file. `remove` deletes only a directory that has this file. */
const KEPT_FILE = 'cloudless-containers.json';
/**
 * Longest path of a socket in Linux: `sun_path` in unix(7), without the terminating NUL.
 */
const SOCKET_PATH_MAX = 107;

/** A line of help for each flag. */
export const flagHelp = Object.entries(options).map(
  ([name, option]) => `  --${toFlag(name).padEnd(11)} ${option.default.padEnd(31)} ${option.env}`,
);

/**
 * Reads the command line.
 * @param args - Arguments after the name of the script.
 * @param env - Environment variables. A flag precedes a variable, a variable precedes the kept
 *   setting, and the kept setting precedes the default.
 * @returns The commands, the switches, and the settings with the paths that follow from them.
 * @throws {@link SetupError} for an unknown flag, an invalid value, or a value other than the kept
 *   one.
 */
export function parseSettings(args, env) {
  const { values, positionals } = parse(args);
  const getGiven = (name) => values[toFlag(name)] ?? env[options[name].env];
  const kept = readKept(getGiven('dir') ?? options.dir.default);
  const settings = {};
  for (const [name, option] of Object.entries(options)) {
    const value = getGiven(name) ?? kept[name] ?? option.default;
    if (!option.form.test(value) || value.includes('..')) {
      throw new SetupError(
        `--${toFlag(name)} is ${JSON.stringify(value)}; it must look like ${option.default}`,
      );
    }
    if (kept[name] !== undefined && kept[name] !== value) {
      throw new SetupError(
        `--${toFlag(name)} is ${value}, but ${kept.dir} was installed with ${kept[name]}; remove that first, or choose another --dir`,
      );
    }
    settings[name] = value;
  }
  const paths = addPaths(settings);
  if (paths.socket.length > SOCKET_PATH_MAX) {
    throw new SetupError(
      `the socket would be ${paths.socket}: over ${SOCKET_PATH_MAX} characters; choose a shorter --run-dir`,
    );
  }
  return {
    commands: positionals,
    json: values.json,
    help: values.help,
    packages: values.packages,
    settings: paths,
  };
}

function parse(args) {
  const flags = Object.fromEntries(
    Object.keys(options).map((name) => [toFlag(name), { type: 'string' }]),
  );
  const switches = {
    json: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
    packages: { type: 'boolean' },
  };
  try {
    return parseArgs({ args, options: { ...flags, ...switches }, allowPositionals: true });
  } catch (reason) {
    throw new SetupError(reason.message);
  }
}

/** Adds the paths that follow from the settings. */
function addPaths(settings) {
  const { dir, runDir } = settings;
  return {
    ...settings,
    socket: join(runDir, 'containerd.sock'),
    stateDir: join(runDir, 'state'),
    runcDir: join(runDir, 'runc'),
    etc: join(dir, 'etc'),
    logs: join(dir, 'log'),
    containerdRoot: join(dir, 'containerd'),
    registryRoot: join(dir, 'registry'),
    addressesDir: join(dir, 'addresses'),
    imagesDir: join(dir, 'images'),
    keptFile: join(dir, KEPT_FILE),
    // beside the directory, which every removal deletes
    packagesFile: `${dir}.packages.json`,
  };
}

const readKept = (dir) => (isAbsolute(dir) ? readJson(join(dir, KEPT_FILE), {}) : {});

/**
 * Writes the settings file.
 * @param more - Further values to keep.
 */
export function keepSettings(settings, more = {}) {
  mkdirSync(settings.dir, { recursive: true });
  const chosen = Object.fromEntries(Object.keys(options).map((name) => [name, settings[name]]));
  writeFileSync(
    settings.keptFile,
    `${JSON.stringify({ ...readJson(settings.keptFile, {}), ...chosen, ...more }, null, 2)}\n`,
  );
}

/**
 * Reads a JSON file; returns `fallback` when the file does not exist.
 * @throws {@link SetupError} when the file cannot be read.
 */
export function readJson(file, fallback) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (reason) {
    if (reason.code === 'ENOENT') return fallback;
    throw new SetupError(`${file} cannot be read: ${reason.message}`);
  }
}
