// `npm run pack:cli`: packs cloudlessctl for machines without a checkout, into dist/packages:
// an archive for `npm install --global`, and a single file that runs alone.
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { cliBundle } from './build.mjs';
import { root, setup } from './setup.mjs';

const readJson = (file) => JSON.parse(readFileSync(join(root, file), 'utf8'));

/**
 * First lines of a program that a shell starts with Node.js. The "--" ends the options of Node.js,
 * which would otherwise take an option of cloudlessctl such as --env-file for its own.
 */
const LAUNCHER = `#!/bin/sh\n':' //; exec node -- "$0" "$@"\n`;

/**
 * Packs cloudlessctl.
 * @param folder - the folder for the two files; created when it does not exist.
 * @returns the paths of the package and of the single file.
 */
export async function packCli(folder) {
  const { build } = await import('esbuild');
  const { version, license } = readJson('apps/cloudlessctl/package.json');
  const { engines } = readJson('package.json');
  const { dependencies } = readJson('libs/state-store-lmdb/package.json');
  const stage = join(folder, 'cloudlessctl');
  rmSync(stage, { recursive: true, force: true });
  mkdirSync(join(stage, 'bin'), { recursive: true });
  await build({ ...cliBundle, outdir: stage, sourcemap: false });
  writeFileSync(
    join(stage, 'package.json'),
    `${JSON.stringify(
      {
        name: 'cloudlessctl',
        version,
        description: 'The command line client of a Cloudless cluster.',
        license,
        type: 'module',
        bin: { cloudlessctl: 'bin/cloudlessctl.mjs' },
        engines,
        // Native, and used by `admin restore` only.
        optionalDependencies: { lmdb: dependencies.lmdb },
      },
      undefined,
      2,
    )}\n`,
  );
  writeFileSync(join(stage, 'bin/cloudlessctl.mjs'), `${LAUNCHER}import '../main.mjs';\n`);
  chmodSync(join(stage, 'bin/cloudlessctl.mjs'), 0o755);
  copyFileSync(join(root, 'apps/cloudlessctl/README.md'), join(stage, 'README.md'));
  cpSync(join(root, 'LICENSE'), join(stage, 'LICENSE'));
  const npm = ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder, stage];
  execFileSync('npm', npm, { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] });
  rmSync(stage, { recursive: true });

  const file = join(folder, `cloudlessctl-${version}.mjs`);
  const { outputFiles } = await build({
    ...cliBundle,
    splitting: false,
    sourcemap: false,
    write: false,
  });
  writeFileSync(file, `${LAUNCHER}${outputFiles[0].text.replace(/^#!.*\n/, '')}`, { mode: 0o755 });
  return { archive: join(folder, `cloudlessctl-${version}.tgz`), file };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  setup();
  const folder = join(root, 'dist/packages');
  mkdirSync(folder, { recursive: true });
  const { archive, file } = await packCli(folder);
  console.log(`${archive}\n${file}`);
}
