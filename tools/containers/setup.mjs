// A real container runtime for Cloudless, apart from any that is there: containerd, a network, a
// registry with test images. `sudo node tools/containers/setup.mjs install` makes it, `remove`
// takes it away; README.md tells more.
import { checkMachine } from './machine.mjs';
import { callCri } from './cri.mjs';
import { pauseImage, writeFiles } from './files.mjs';
import { imageNames, provideImages } from './images.mjs';
import { brought, installPackages, keepPackages, missing, removePackages } from './packages.mjs';
import { daemons, pidOf, startDaemon, stopDaemon } from './processes.mjs';
import { removeAll } from './removal.mjs';
import { flagHelp, keepSettings, parseSettings, readJson, SetupError } from './settings.mjs';
import { checkPods } from './check.mjs';

const help = `usage: setup.mjs COMMAND [flags]       as root, on Debian or Ubuntu

  install   installs what is missing, starts it, puts the test images into the registry
  start     starts it again, after a stop or a reboot
  stop      ends containerd and the registry; running containers go on
  status    says what runs; ends with 3 unless everything does
  check     runs a pod from nginx:alpine and asks it over HTTP
  remove    ends the pods and all the rest, and deletes it; with --packages also the packages that install brought

flag          default                         environment variable
${flagHelp.join('\n')}
  --json      prints the answer as one line of JSON; what happens meanwhile goes to standard error
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
    // Kept from now on, so that pods start without the registry as well.
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
    const answer = { removed: true, dir: settings.dir, runDir: settings.runDir };
    if (packages) return { ...answer, packages: removePackages(settings, say) };
    const stay = brought(settings);
    if (stay.length > 0)
      say(`the packages ${stay.join(', ')} stay; "remove --packages" takes them away, also later`);
    return answer;
  },
};

/** What a script needs to use it. */
function describe(settings) {
  const { socket, registry, dir, runDir, bridge, subnet } = settings;
  const processes = Object.fromEntries(
    daemons.map((daemon) => [daemon.name, pidOf(settings, daemon) ?? null]),
  );
  const running = Object.values(processes).every((pid) => pid !== null);
  return { running, socket, registry, images: imageNames, dir, runDir, bridge, subnet, processes };
}

function requireInstalled(settings) {
  const lacking = missing().map((need) => need.name);
  if (readJson(settings.keptFile, undefined) === undefined || lacking.length > 0) {
    const why =
      lacking.length > 0 ? `missing: ${lacking.join(', ')}` : `there is no ${settings.keptFile}`;
    throw new SetupError(`not installed (${why}); run "install" first`);
  }
}

function print(answer, json) {
  if (json) return console.log(JSON.stringify(answer));
  for (const [key, value] of Object.entries(answer)) {
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
      `one command is needed, and it is not ${JSON.stringify([name, ...others].join(' '))}\n\n${help}`,
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
