// The test images: a static busybox and a few files each, put into the local registry.
import { createHash } from 'node:crypto';
import { chmodSync, copyFileSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { busyboxOf } from './packages.mjs';
import { keepSettings, readJson } from './settings.mjs';
import { run } from './run.mjs';

/**
 * The first process of a container gets no default handling of signals, so a plain `httpd` or
 * `sleep` would ignore SIGTERM and each stop would last its whole grace: this shell hands the
 * signal on.
 */
const SERVE = `#!/bin/sh
port="\${1:-$PORT}"
httpd -f -vv -p "$port" -h /www &
child=$!
trap 'echo "stopping"; kill "$child"; wait "$child"; exit 0' TERM INT QUIT
echo "serving on port $port"
wait "$child"
`;
const PAUSE = `#!/bin/sh
trap 'exit 0' TERM INT
while :; do sleep 86400 & wait $!; done
`;
const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** One small web server; what it serves tells which image it is. */
const server = (names, port, files) => ({
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
const versioned = (version) =>
  server([`cloudless/test:${version}`], 8080, {
    'www/index.html': `cloudless/test:${version}\n`,
    'www/version': `${version}\n`,
  });

/**
 * What the registry holds. `names` without a host: those of `library/` stand in for images of
 * docker.io of the same name.
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
  server(['library/nginx:alpine', 'library/nginx:latest'], 80, {
    'www/index.html':
      '<h1>Welcome to nginx!</h1>\n<p>A stand-in for tests of Cloudless: busybox httpd.</p>\n',
  }),
  versioned(1),
  versioned(2),
];

/** How a workload names them: those of docker.io by their short names, `cloudless/...` alike. */
export const imageNames = recipes.flatMap((recipe) =>
  recipe.names.map((name) => name.replace(/^library\//, '')),
);

/**
 * Builds the images and puts them into the registry; does nothing when these very images are there
 * already.
 */
export async function provideImages(settings, say) {
  const wanted = createHash('sha256')
    .update(JSON.stringify({ recipes, rootVersion: 1 }))
    .digest('hex');
  if (readJson(settings.keptFile, {}).images === wanted && (await allThere(settings))) return;
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
  keepSettings(settings, { images: wanted });
}

async function allThere(settings) {
  for (const name of recipes.flatMap((recipe) => recipe.names)) {
    const [repository, tag] = name.split(':');
    const accept = { accept: 'application/vnd.oci.image.manifest.v1+json' };
    const answer = await fetch(`http://${settings.registry}/v2/${repository}/manifests/${tag}`, {
      headers: accept,
    });
    await answer.arrayBuffer();
    if (!answer.ok) return false;
  }
  return true;
}

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

const insert = (layout, tag, dir) =>
  run('umoci', ['insert', '--image', `${layout}:${tag}`, dir, '/']);

/**
 * The root file system of every image: busybox under each of its names, and the users that a
 * workload may run as.
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
  const busybox = busyboxOf(settings);
  copyFileSync(busybox, join(root, 'bin/busybox'));
  for (const name of run(busybox, ['--list']).trim().split('\n')) {
    if (name !== 'busybox') symlinkSync('busybox', join(root, 'bin', name));
  }
  symlinkSync('/bin/env', join(root, 'usr/bin/env'));
  return root;
}

/** The modes are set, not left to the umask of who runs this. */
function writeTree(root, files) {
  for (const [name, text] of Object.entries(files)) {
    const file = join(root, name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
    chmodSync(file, name.endsWith('.sh') ? 0o755 : 0o644);
  }
}
