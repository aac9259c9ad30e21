// `npm run pack:cli`: packs cloudlessctl for machines without a checkout, into dist/packages:
// an archive for `npm install --global`, and a single file that runs alone.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { cliBundle } from './build.mjs';
import { LAUNCHER, packProgram, readJson } from './pack/pack-program.mjs';
import { root, setup } from './setup.mjs';

/**
 * Packs cloudlessctl.
 * @param folder - the folder for the two files; must exist.
 * @returns the paths of the package and of the single file.
 */
export async function packCli(folder) {
  const { build } = await import('esbuild');
  const archive = await packProgram({
    folder,
    app: 'cloudlessctl',
    name: 'cloudlessctl',
    description: 'The command line client of a Cloudless cluster.',
    writeBundle: (stage) =>
      build({ ...cliBundle, outdir: stage, sourcemap: false, metafile: true }),
    native: [
      {
        name: 'lmdb',
        from: 'libs/state-store-lmdb',
        // Used by `admin restore` only; the binaries for single versions of Node.js make the
        // package twice as large.
        keepFile: (file) => !/\.abi\d+\./.test(file),
        isRequired: false,
      },
    ],
  });
  const { version } = readJson('apps/cloudlessctl/package.json');
  const file = join(folder, `cloudlessctl-${version}.mjs`);
  const { outputFiles } = await build({
    ...cliBundle,
    splitting: false,
    sourcemap: false,
    write: false,
  });
  writeFileSync(file, `${LAUNCHER}${outputFiles[0].text.replace(/^#!.*\n/, '')}`, { mode: 0o755 });
  return { archive, file };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  setup();
  const folder = join(root, 'dist/packages');
  mkdirSync(folder, { recursive: true });
  const { archive, file } = await packCli(folder);
  console.log(`${archive}\n${file}`);
}
