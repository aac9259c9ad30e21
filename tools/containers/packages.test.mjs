// `node --test tools/containers/`: which packages are removed, by a package manager that only keeps
// a list in a file.
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
import { busyboxOf, installPackages, keepPackages, removePackages } from './packages.mjs';
import { env } from './run.mjs';
import { parseSettings } from './settings.mjs';

/**
 * What each package needs. `curl` is the user's own from the beginning; `docker` comes later, if at
 * all.
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

describe('packages', () => {
  it('are removed when install brought them, with what they need, and no others', (t) => {
    const place = aPlace(t, { installed: ['curl', 'libseccomp'] });
    place.install('containerd', 'skopeo');
    assert.deepEqual(place.installed(), [
      'containerd',
      'curl',
      'libgpgme',
      'libseccomp',
      'runc',
      'skopeo',
    ]);
    assert.deepEqual(place.remove(), {
      removed: ['containerd', 'libgpgme', 'runc', 'skopeo'],
      kept: [],
    });
    assert.deepEqual(place.installed(), ['curl', 'libseccomp']);
    assert.equal(existsSync(place.settings.packagesFile), false);
  });

  it('are removed after a removal without them, and after a second install that found them there', (t) => {
    const place = aPlace(t, { installed: [] });
    place.install('containerd');
    keepPackages(place.settings);
    rmSync(place.settings.dir, { recursive: true });
    place.install('containerd');
    assert.deepEqual(place.remove().removed, ['containerd', 'libseccomp', 'runc']);
    assert.deepEqual(place.installed(), []);
  });

  it('are removed after an install that failed when they were there already', (t) => {
    const place = aPlace(t, { installed: [], broken: 'download' });
    assert.throws(
      () => place.install('containerd'),
      /apt-get -q download busybox-static" failed: broken/,
    );
    place.repair();
    place.install('containerd');
    assert.deepEqual(place.remove().removed, ['containerd', 'libseccomp', 'runc']);
  });

  it('are not removed when the install of them failed and somebody else installed them later', (t) => {
    const place = aPlace(t, { installed: [], broken: 'install' });
    assert.throws(() => place.install('containerd'), /failed: broken/);
    place.repair();
    place.add('containerd');
    assert.deepEqual(place.remove(), { removed: [], kept: [] });
    assert.deepEqual(place.installed(), ['containerd', 'libseccomp', 'runc']);
  });

  it('stay when others that came later need them, are named, and go when those have gone', (t) => {
    const place = aPlace(t, { installed: [] });
    place.install('containerd', 'skopeo');
    place.add('docker');
    const kept = ['containerd', 'libseccomp', 'runc'];
    assert.deepEqual(place.remove(), { removed: ['libgpgme', 'skopeo'], kept });
    assert.match(place.said(), /the packages containerd, libseccomp, runc stay: docker needs them/);
    assert.deepEqual(place.installed(), ['containerd', 'docker', 'libseccomp', 'runc']);
    place.take('docker');
    assert.deepEqual(place.remove(), { removed: kept, kept: [] });
  });

  it('that an older install kept in its settings are removed', (t) => {
    const place = aPlace(t, { installed: ['runc', 'libseccomp'] });
    writeFileSync(place.settings.keptFile, JSON.stringify({ packages: ['runc'] }));
    keepPackages(place.settings);
    rmSync(place.settings.dir, { recursive: true });
    assert.deepEqual(place.remove().removed, ['runc']);
  });
});

/** A directory for a set-up, and a package manager before that of this machine on the path. */
function aPlace(t, { installed, broken }) {
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
    installed: read,
    said: () => texts.join('\n'),
    add: (name) => write([...read(), ...withNeeds(name)]),
    take: (name) => write(read().filter((each) => each !== name)),
    repair: () => rmSync(state),
    install: (...names) => {
      mkdirSync(settings.dir, { recursive: true });
      const needs = names.map((name) => ({
        name,
        package: name,
        there: () => read().includes(name),
      }));
      installPackages(settings, say, { needs, policy: join(root, 'policy-rc.d') });
      assert.ok(existsSync(busyboxOf(settings)));
    },
    remove: () => removePackages(settings, say),
  };
}

function withNeeds(name) {
  return [name, ...depends[name].flatMap(withNeeds)];
}

/** One program for all three names. */
function program({ list, state }) {
  return `#!${process.execPath}
const fs = require('node:fs');
const path = require('node:path');
const depends = ${JSON.stringify(depends)};
const withNeeds = (name) => [name, ...depends[name].flatMap(withNeeds)];
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
    const all = names.flatMap(withNeeds).filter((name) => !installed.includes(name));
    for (const name of new Set(all)) console.log('Inst ' + name + ' (1.0 Debian)');
    if (!isTrial) keep([...installed, ...all]);
  },
  purge: () => {
    const goes = installed.filter((name) => withNeeds(name).some((each) => names.includes(each)));
    for (const name of goes) console.log('Purg ' + name + ' [1.0]');
    if (!isTrial) keep(installed.filter((name) => !goes.includes(name)));
  },
};
const self = path.basename(process.argv[1]);
(commands[self] ?? commands[verb])();
`;
}
