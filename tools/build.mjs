// Bundles each app into dist/apps/<app>/main.mjs. Run it alone with `npm run build`.
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { root, setup } from './setup.mjs';

const apps = ['coordinator', 'agent', 'dev-cluster'];

/** Options of every bundle. */
const common = {
  absWorkingDir: root,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'esm',
  conditions: ['@cloudless/source'],
  // Native, so it stays a package of its own.
  external: ['lmdb'],
  sourcemap: 'linked',
  sourcesContent: false,
  logLevel: 'warning',
  // Some packages are CommonJS and ask for Node's own modules by require.
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);",
  },
};

const cliFolder = 'dist/apps/cloudlessctl';

/**
 * The bundle of cloudlessctl: a small entry, and chunks that `import()` loads on demand. Most of the
 * start time of a command is the time to read code.
 */
export const cliBundle = {
  ...common,
  entryPoints: { main: 'apps/cloudlessctl/src/main.ts' },
  outdir: cliFolder,
  splitting: true,
  chunkNames: 'chunks/[name]-[hash]',
};

/** @returns when all bundles are written */
export async function build() {
  const { build: bundle } = await import('esbuild');
  const [, { metafile }] = await Promise.all([
    bundle({
      ...common,
      entryPoints: {
        ...Object.fromEntries(apps.map((app) => [`${app}/main`, `apps/${app}/src/main.ts`])),
        // The thread that keeps the lease of an agent while its main loop stands still.
        'agent/lease-worker': 'apps/agent/src/lease/lease-worker.ts',
      },
      outdir: 'dist/apps',
    }),
    bundle({ ...cliBundle, metafile: true }),
  ]);
  removeStaleChunks(Object.keys(metafile.outputs));
}

/**
 * Removes the chunks of earlier builds after the new chunks are written: a cloudlessctl that starts
 * during the build finds a complete set. The names of chunks change with their content.
 */
function removeStaleChunks(outputs) {
  const kept = new Set(outputs.map((path) => resolve(root, path)));
  const folder = join(root, cliFolder, 'chunks');
  for (const name of existsSync(folder) ? readdirSync(folder) : []) {
    const path = join(folder, name);
    if (!kept.has(path)) rmSync(path);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  setup();
  await build();
}
