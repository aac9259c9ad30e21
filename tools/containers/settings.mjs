// Where everything of this set-up lives. What `install` was told is kept in the directory, so later
// commands need only `--dir`.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { parseArgs } from 'node:util';

/**
 * A mistake of the user, or something about the machine that the user can change: shown without a
 * stack.
 */
export class SetupError extends Error {}

/** Every setting: flag, environment variable, default and form. */
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
  // The kernel takes 15 characters for the name of a network interface.
  bridge: { env: 'CLOUDLESS_CONTAINERS_BRIDGE', default: 'cloudless0', form: /^[\w-]{1,15}$/ },
  subnet: {
    env: 'CLOUDLESS_CONTAINERS_SUBNET',
    default: '10.231.0.0/16',
    form: /^\d{1,3}(\.\d{1,3}){3}\/\d{1,2}$/,
  },
};
const flagOf = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
/** Its name tells that the directory is ours: `remove` deletes no other. */
const KEPT_FILE = 'cloudless-containers.json';
/**
 * Where Linux keeps a socket's path, there is room for so many characters (`sun_path` in unix(7),
 * less the final zero).
 */
const SOCKET_PATH_MAX = 107;

/** One line per flag, for `--help`. */
export const flagHelp = Object.entries(options).map(
  ([name, option]) => `  --${flagOf(name).padEnd(11)} ${option.default.padEnd(31)} ${option.env}`,
);

/**
 * Reads the command line.
 * @param args - what follows the name of the script.
 * @param env - the environment: a flag beats a variable, a variable beats what `install` kept, and
 *   that beats the default.
 * @returns the command, whether the answer is wanted as JSON, and the settings with the paths that
 *   follow from them.
 * @throws {@link SetupError} for what cannot be.
 */
export function parseSettings(args, env) {
  const { values, positionals } = parse(args);
  const given = (name) => values[flagOf(name)] ?? env[options[name].env];
  const kept = readKept(given('dir') ?? options.dir.default);
  const settings = {};
  for (const [name, option] of Object.entries(options)) {
    const value = given(name) ?? kept[name] ?? option.default;
    if (!option.form.test(value) || value.includes('..')) {
      throw new SetupError(
        `--${flagOf(name)} is ${JSON.stringify(value)}; it must look like ${option.default}`,
      );
    }
    if (kept[name] !== undefined && kept[name] !== value) {
      throw new SetupError(
        `--${flagOf(name)} is ${value}, but ${kept.dir} was installed with ${kept[name]}; remove that first, or choose another --dir`,
      );
    }
    settings[name] = value;
  }
  const paths = pathsOf(settings);
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
    Object.keys(options).map((name) => [flagOf(name), { type: 'string' }]),
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

function pathsOf(settings) {
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
    // Beside the directory, which a removal without --packages deletes.
    packagesFile: `${dir}.packages.json`,
  };
}

const readKept = (dir) => (isAbsolute(dir) ? readJson(join(dir, KEPT_FILE), {}) : {});

/** Keeps what was chosen. */
export function keepSettings(settings, more = {}) {
  mkdirSync(settings.dir, { recursive: true });
  const chosen = Object.fromEntries(Object.keys(options).map((name) => [name, settings[name]]));
  writeFileSync(
    settings.keptFile,
    `${JSON.stringify({ ...readJson(settings.keptFile, {}), ...chosen, ...more }, null, 2)}\n`,
  );
}

/** Reads a JSON file; `otherwise` when there is none. */
export function readJson(file, otherwise) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (reason) {
    if (reason.code === 'ENOENT') return otherwise;
    throw new SetupError(`${file} cannot be read: ${reason.message}`);
  }
}
