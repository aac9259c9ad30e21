// Installs and removes a container runtime for Cloudless, apart from any other on the machine:
// containerd, a network, and a registry with test images. See README.md.
import { checkMachine } from './machine.mjs';
import { callCri } from './cri.mjs';
import { pauseImage, writeFiles } from './files.mjs';
import { imageNames, provideImages } from './images.mjs';
import {
  findMissing,
  installPackages,
  keepPackages,
  listAddedPackages,
  removePackages,
} from './packages.mjs';
import { daemons, findPid, startDaemon, stopDaemon } from './processes.mjs';
import { removeAll } from './removal.mjs';
import { flagHelp, keepSettings, parseSettings, readJson, SetupError } from './settings.mjs';
import { checkPods } from './check.mjs';

const help = `usage: setup.mjs COMMAND [flags]       as root, on Debian or Ubuntu

  install   installs missing packages, starts both daemons, pushes the test images to the registry
  start     starts both daemons, for example after a stop or a reboot
  stop      stops containerd and the registry; running containers continue
  status    prints the state; exits with 3 unless both daemons run
  check     runs a pod from nginx:alpine and requests a page from it over HTTP
  remove    deletes pods, daemons, network and files; with --packages also the packages that install added

flag          default                         environment variable
${flagHelp.join('\n')}
  --json      prints the result as one line of JSON; progress always goes to standard error
`;

const commands = {
  async install({ settings, say }) {
    await checkMachine(settings);
    keepSettings(settings);
    installPackages(settings, say);
    const changed = writeFiles(settings);
    if (changed.length > 0)
      say(`changed ${changed.join(', ')}; what runs takes that up when it is stopped and started`);
    const [registry, containerd] = daemons;
    await startDaemon(settings, registry, say);
    await provideImages(settings, say);
    await startDaemon(settings, containerd, say);
    // containerd keeps the image, so that pods start also when the registry does not run
    await callCri(settings.socket, 'PullImage', { image: { image: pauseImage(settings) } });
    return describe(settings);
  },
  async start({ settings, say }) {
    requireInstalled(settings);
    for (const daemon of daemons) await startDaemon(settings, daemon, say);
    return describe(settings);
  },
  async stop({ settings, say }) {
    for (const daemon of daemons.toReversed()) await stopDaemon(settings, daemon, say);
    return describe(settings);
  },
  async status({ settings }) {
    const state = describe(settings);
    if (!state.running) process.exitCode = 3;
    return state;
  },
  async check({ settings, say }) {
    requireInstalled(settings);
    return { ...describe(settings), ...(await checkPods(settings, say)) };
  },
  async remove({ settings, say, packages }) {
    keepPackages(settings);
    await removeAll(settings, say);
    const result = { removed: true, dir: settings.dir, runDir: settings.runDir };
    if (packages) return { ...result, packages: removePackages(settings, say) };
    const kept = listAddedPackages(settings);
    if (kept.length > 0)
      say(`the packages ${kept.join(', ')} stay; "remove --packages" takes them away, also later`);
    return result;
  },
};

/** Returns the state of the set-up, and what a script needs to use it. */
function describe(settings) {
  const { socket, registry, dir, runDir, bridge, subnet } = settings;
  const processes = Object.fromEntries(
    daemons.map((daemon) => [daemon.name, findPid(settings, daemon) ?? null]),
  );
  const running = Object.values(processes).every((pid) => pid !== null);
  return { running, socket, registry, images: imageNames, dir, runDir, bridge, subnet, processes };
}

/** @throws {@link SetupError} when `install` has not run or a program is missing. */
function requireInstalled(settings) {
  const missing = findMissing().map((need) => need.name);
  if (readJson(settings.keptFile, undefined) === undefined || missing.length > 0) {
    const reason =
      missing.length > 0 ? `missing: ${missing.join(', ')}` : `there is no ${settings.keptFile}`;
    throw new SetupError(`not installed (${reason}); run "install" first`);
  }
}

/** Prints a result as a table or as JSON. */
function print(result, json) {
  if (json) return console.log(JSON.stringify(result));
  for (const [key, value] of Object.entries(result)) {
    const text = value !== null && typeof value === 'object' ? JSON.stringify(value) : value;
    console.log(`${key.padEnd(10)} ${text}`);
  }
}

try {
  const {
    commands: [name, ...others],
    json,
    help: wantsHelp,
    packages,
    settings,
  } = parseSettings(process.argv.slice(2), process.env);
  if (wantsHelp) {
    console.log(help);
  } else if (!Object.hasOwn(commands, name ?? '') || others.length > 0) {
    throw new SetupError(
      `expected one command, got ${JSON.stringify([name, ...others].join(' '))}\n\n${help}`,
    );
  } else {
    if (process.getuid() !== 0)
      throw new SetupError(
        `"${name}" needs root: sudo "$(command -v node)" ${process.argv[1]} ${name}`,
      );
    print(await commands[name]({ settings, packages, say: (text) => console.error(text) }), json);
  }
} catch (reason) {
  if (!(reason instanceof SetupError)) throw reason;
  console.error(reason.message);
  process.exitCode = 1;
}
