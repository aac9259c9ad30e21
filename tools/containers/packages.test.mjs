// `node --test tools/containers/`: tests which packages are installed and removed, with a package
// manager that only keeps a list in a file.
import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { describe, it } from 'node:test';
import { getBusyboxPath, installPackages, keepPackages, removePackages } from './packages.mjs';
import { env } from './run.mjs';
import { parseSettings } from './settings.mjs';

/**
 * Dependencies of each package. `curl` is a package of the user from the beginning; `docker` is a
 * package that the user may install later.
 */
const depends = {
  ...{
    containerd: ['runc'],
    runc: ['libseccomp'],
    skopeo: ['libgpgme'],
    libseccomp: [],
    libgpgme: [],
    curl: ['libseccomp'],
  },
  ...{ docker: ['containerd'] },
};

describe('removePackages', () => {
  it('removes packages that install added, with their dependencies, and no others', (t) => {
    const setup = createTestSetup(t, { installed: ['curl', 'libseccomp'] });
    setup.install('containerd', 'skopeo');
    assert.deepEqual(setup.listInstalled(), [
      'containerd',
      'curl',
      'libgpgme',
      'libseccomp',
      'runc',
      'skopeo',
    ]);
    assert.deepEqual(setup.remove(), {
      removed: ['containerd', 'libgpgme', 'runc', 'skopeo'],
      kept: [],
    });
    assert.deepEqual(setup.listInstalled(), ['curl', 'libseccomp']);
    assert.equal(existsSync(setup.settings.packagesFile), false);
  });

  it('removes packages that an earlier install added and a second install found installed', (t) => {
    const setup = createTestSetup(t, { installed: [] });
    setup.install('containerd');
    keepPackages(setup.settings);
    rmSync(setup.settings.dir, { recursive: true });
    setup.install('containerd');
    assert.deepEqual(setup.remove().removed, ['containerd', 'libseccomp', 'runc']);
    assert.deepEqual(setup.listInstalled(), []);
  });

  it('removes packages of an install that failed after it had added them', (t) => {
    const setup = createTestSetup(t, { installed: [], broken: 'download' });
    assert.throws(
      () => setup.install('containerd'),
      /apt-get -q download busybox-static" failed: broken/,
    );
    setup.repair();
    setup.install('containerd');
    assert.deepEqual(setup.remove().removed, ['containerd', 'libseccomp', 'runc']);
  });

  it('keeps packages that install failed to add and the user installed later', (t) => {
    const setup = createTestSetup(t, { installed: [], broken: 'install' });
    assert.throws(() => setup.install('containerd'), /failed: broken/);
    setup.repair();
    setup.add('containerd');
    assert.deepEqual(setup.remove(), { removed: [], kept: [] });
    assert.deepEqual(setup.listInstalled(), ['containerd', 'libseccomp', 'runc']);
  });

  it('keeps packages that a later package needs, and removes them when that package is removed', (t) => {
    const setup = createTestSetup(t, { installed: [] });
    setup.install('containerd', 'skopeo');
    setup.add('docker');
    const kept = ['containerd', 'libseccomp', 'runc'];
    assert.deepEqual(setup.remove(), { removed: ['libgpgme', 'skopeo'], kept });
    assert.match(
      setup.getOutput(),
      /the packages containerd, libseccomp, runc stay: docker needs them/,
    );
    assert.deepEqual(setup.listInstalled(), ['containerd', 'docker', 'libseccomp', 'runc']);
    setup.uninstall('docker');
    assert.deepEqual(setup.remove(), { removed: kept, kept: [] });
  });

  it('removes packages that an older version recorded in its settings file', (t) => {
    const setup = createTestSetup(t, { installed: ['runc', 'libseccomp'] });
    writeFileSync(setup.settings.keptFile, JSON.stringify({ packages: ['runc'] }));
    keepPackages(setup.settings);
    rmSync(setup.settings.dir, { recursive: true });
    assert.deepEqual(setup.remove().removed, ['runc']);
  });
});

/**
 * Returns a set-up in a new directory with a fake package manager, which comes first on the path.
 * @param options - `installed`: installed packages. `broken`: the command of apt-get that fails.
 */
function createTestSetup(t, { installed, broken }) {
  const root = mkdtempSync(join(tmpdir(), 'cloudless-packages-'));
  const before = env.PATH;
  t.after(() => {
    env.PATH = before;
    rmSync(root, { recursive: true, force: true });
  });
  const [bin, list, state] = [
    join(root, 'bin'),
    join(root, 'installed.json'),
    join(root, 'broken'),
  ];
  mkdirSync(bin);
  env.PATH = `${bin}${delimiter}${before}`;
  for (const name of ['apt-get', 'dpkg-query', 'dpkg-deb']) {
    writeFileSync(join(bin, name), program({ list, state }));
    chmodSync(join(bin, name), 0o755);
  }
  const { settings } = parseSettings(
    ['install', '--dir', join(root, 'lib'), '--run-dir', join(root, 'run')],
    {},
  );
  const read = () => JSON.parse(readFileSync(list, 'utf8'));
  const write = (names) => writeFileSync(list, JSON.stringify([...new Set(names)].sort()));
  const texts = [];
  const say = (text) => texts.push(text);
  write(installed);
  mkdirSync(settings.dir);
  if (broken !== undefined) writeFileSync(state, broken);
  return {
    settings,
    listInstalled: read,
    getOutput: () => texts.join('\n'),
    add: (name) => write([...read(), ...withDependencies(name)]),
    uninstall: (name) => write(read().filter((other) => other !== name)),
    repair: () => rmSync(state),
    install: (...names) => {
      mkdirSync(settings.dir, { recursive: true });
      const needs = names.map((name) => ({
        name,
        package: name,
        isInstalled: () => read().includes(name),
      }));
      installPackages(settings, say, { needs, policy: join(root, 'policy-rc.d') });
      assert.ok(existsSync(getBusyboxPath(settings)));
    },
    remove: () => removePackages(settings, say),
  };
}

/** Returns a package and all its dependencies. */
function withDependencies(name) {
  return [name, ...depends[name].flatMap(withDependencies)];
}

/** Returns the fake program, which serves as apt-get, dpkg-query and dpkg-deb. */
function program({ list, state }) {
  return `#!${process.execPath}
const fs = require('node:fs');
const path = require('node:path');
const depends = ${JSON.stringify(depends)};
const withDependencies = (name) => [name, ...depends[name].flatMap(withDependencies)];
const installed = JSON.parse(fs.readFileSync(${JSON.stringify(list)}, 'utf8'));
const keep = (names) => fs.writeFileSync(${JSON.stringify(list)}, JSON.stringify([...new Set(names)].sort()));
const broken = fs.existsSync(${JSON.stringify(state)}) ? fs.readFileSync(${JSON.stringify(state)}, 'utf8') : '';
const words = process.argv.slice(2);
const [verb, ...names] = words.filter((word) => !word.startsWith('-'));
const isTrial = words.includes('-s');
if (verb === broken && !isTrial) {
  console.error('broken');
  process.exit(100);
}
const commands = {
  'dpkg-query': () => {
    for (const name of installed) console.log('installed ' + name);
    console.log('config-files vim');
  },
  'dpkg-deb': () => {
    const dir = path.join(names.at(-1), 'bin');
    fs.mkdirSync(dir, { recursive: true });
    fs.writeFileSync(path.join(dir, 'busybox'), '');
  },
  update: () => undefined,
  download: () => fs.writeFileSync('busybox-static_1_all.deb', ''),
  install: () => {
    const all = names.flatMap(withDependencies).filter((name) => !installed.includes(name));
    for (const name of new Set(all)) console.log('Inst ' + name + ' (1.0 Debian)');
    if (!isTrial) keep([...installed, ...all]);
  },
  purge: () => {
    const purged = installed.filter((name) => withDependencies(name).some((other) => names.includes(other)));
    for (const name of purged) console.log('Purg ' + name + ' [1.0]');
    if (!isTrial) keep(installed.filter((name) => !purged.includes(name)));
  },
};
const self = path.basename(process.argv[1]);
(commands[self] ?? commands[verb])();
`;
}
