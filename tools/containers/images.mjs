// Builds the test images, each a static busybox and a few files, and pushes them to the registry.
import { createHash } from 'node:crypto';
import { chmodSync, copyFileSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { getBusyboxPath } from './packages.mjs';
import { keepSettings, readJson } from './settings.mjs';
import { run } from './run.mjs';

/**
 * Script of the servers. Process 1 of a container has no default handling of signals, so a plain
 * `httpd` would ignore SIGTERM, and each stop would last its whole grace period. The script
 * forwards the signal.
 */
const SERVE = `#!/bin/sh
port="\${1:-$PORT}"
httpd -f -vv -p "$port" -h /www &
child=$!
trap 'echo "stopping"; kill "$child"; wait "$child"; exit 0' TERM INT QUIT
echo "serving on port $port"
wait "$child"
`;
/** Script of the pause image: waits until SIGTERM. */
const PAUSE = `#!/bin/sh
trap 'exit 0' TERM INT
while :; do sleep 86400 & wait $!; done
`;
const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Returns the recipe of a web server; its pages tell which image serves them. */
const createServerRecipe = (names, port, files) => ({
  names,
  files: { ...files, 'serve.sh': SERVE },
  config: [
    '--config.entrypoint',
    '/serve.sh',
    '--config.env',
    `PORT=${port}`,
    '--config.exposedports',
    `${port}/tcp`,
  ],
});
/** Returns the recipe of `cloudless/test` in one version. */
const createVersionRecipe = (version) =>
  createServerRecipe([`cloudless/test:${version}`], 8080, {
    'www/index.html': `cloudless/test:${version}\n`,
    'www/version': `${version}\n`,
  });

/**
 * Recipes of the images: `names` in the registry (those of `library/` replace the images of
 * docker.io of the same name), `files` to add to the root file system, and flags of `umoci config`.
 */
const recipes = [
  {
    names: ['library/busybox:latest', 'library/busybox:1'],
    files: {},
    config: ['--config.cmd', 'sh'],
  },
  {
    names: ['cloudless/pause:1'],
    files: { 'pause.sh': PAUSE },
    config: ['--config.entrypoint', '/pause.sh'],
  },
  createServerRecipe(['library/nginx:alpine', 'library/nginx:latest'], 80, {
    'www/index.html':
      '<h1>Welcome to nginx!</h1>\n<p>A stand-in for tests of Cloudless: busybox httpd.</p>\n',
  }),
  createVersionRecipe(1),
  createVersionRecipe(2),
];

/** Names of the images in workloads: short names for `library/`. */
export const imageNames = recipes.flatMap((recipe) =>
  recipe.names.map((name) => name.replace(/^library\//, '')),
);

/**
 * Builds the images and pushes them to the registry. Does nothing when the registry has the images
 * of these recipes.
 * @param say - Prints a line of progress.
 */
export async function provideImages(settings, say) {
  const recipeHash = createHash('sha256')
    .update(JSON.stringify({ recipes, rootVersion: 1 }))
    .digest('hex');
  if (readJson(settings.keptFile, {}).images === recipeHash && (await hasAllImages(settings)))
    return;
  say('building the test images');
  rmSync(settings.imagesDir, { recursive: true, force: true });
  mkdirSync(settings.imagesDir, { recursive: true });
  const layout = join(settings.imagesDir, 'layout');
  run('umoci', ['init', '--layout', layout]);
  run('umoci', ['new', '--image', `${layout}:base`]);
  insert(layout, 'base', makeRoot(settings));
  run('umoci', [
    'config',
    '--image',
    `${layout}:base`,
    '--config.env',
    PATH,
    '--config.workingdir',
    '/',
  ]);
  recipes.forEach((recipe, index) => publish(settings, layout, `image-${index}`, recipe));
  rmSync(settings.imagesDir, { recursive: true, force: true });
  keepSettings(settings, { images: recipeHash });
}

/** Returns true when the registry has all images. */
async function hasAllImages(settings) {
  for (const name of recipes.flatMap((recipe) => recipe.names)) {
    const [repository, tag] = name.split(':');
    const accept = { accept: 'application/vnd.oci.image.manifest.v1+json' };
    const response = await fetch(`http://${settings.registry}/v2/${repository}/manifests/${tag}`, {
      headers: accept,
    });
    await response.arrayBuffer();
    if (!response.ok) return false;
  }
  return true;
}

/** Builds the image of one recipe and pushes it under all its names. */
function publish(settings, layout, tag, { names, files, config }) {
  run('umoci', ['tag', '--image', `${layout}:base`, tag]);
  if (Object.keys(files).length > 0) {
    const extra = join(settings.imagesDir, tag);
    writeTree(extra, files);
    insert(layout, tag, extra);
  }
  run('umoci', ['config', '--image', `${layout}:${tag}`, ...config]);
  for (const name of names) {
    const target = `docker://${settings.registry}/${name}`;
    run('skopeo', [
      '--insecure-policy',
      'copy',
      '-q',
      '--dest-tls-verify=false',
      `oci:${layout}:${tag}`,
      target,
    ]);
  }
}

/** Adds the files of a directory to the root of an image. */
const insert = (layout, tag, dir) =>
  run('umoci', ['insert', '--image', `${layout}:${tag}`, dir, '/']);

/**
 * Creates the root file system of all images: busybox under the name of each of its programs, and
 * the users that a workload may run as.
 * @returns The directory of the file system.
 */
function makeRoot(settings) {
  const root = join(settings.imagesDir, 'root');
  writeTree(root, {
    'etc/passwd':
      'root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n',
    'etc/group': 'root:x:0:\napp:x:1000:\nnogroup:x:65534:\n',
  });
  for (const dir of [
    'bin',
    'dev',
    'home',
    'proc',
    'root',
    'run',
    'sys',
    'tmp',
    'usr/bin',
    'var/log',
  ]) {
    mkdirSync(join(root, dir), { recursive: true });
  }
  chmodSync(join(root, 'tmp'), 0o1777);
  const busybox = getBusyboxPath(settings);
  copyFileSync(busybox, join(root, 'bin/busybox'));
  for (const name of run(busybox, ['--list']).trim().split('\n')) {
    if (name !== 'busybox') symlinkSync('busybox', join(root, 'bin', name));
  }
  symlinkSync('/bin/env', join(root, 'usr/bin/env'));
  return root;
}

/** Writes files with fixed modes, independent of the umask of the user. */
function writeTree(root, files) {
  for (const [name, text] of Object.entries(files)) {
    const file = join(root, name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
    chmodSync(file, name.endsWith('.sh') ? 0o755 : 0o644);
  }
}
