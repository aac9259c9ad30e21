// Bundles each app into dist/apps/<app>/main.mjs. Run it alone with `npm run build`.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
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

/** @returns when all bundles are written */
export async function build() {
  const { build: bundle } = await import('esbuild');
  await Promise.all([
    bundle({
      ...common,
      entryPoints: Object.fromEntries(
        apps.map((app) => [`${app}/main`, `apps/${app}/src/main.ts`]),
      ),
      outdir: 'dist/apps',
    }),
    buildCli(bundle),
  ]);
}

/**
 * Bundles cloudlessctl as a small entry and chunks, which `import()` loads on demand: most of the
 * start time of a command is the time to read code.
 */
async function buildCli(bundle) {
  const outdir = 'dist/apps/cloudlessctl';
  rmSync(join(root, outdir, 'chunks'), { recursive: true, force: true });
  await bundle({
    ...common,
    entryPoints: { main: 'apps/cloudlessctl/src/main.ts' },
    outdir,
    splitting: true,
    chunkNames: 'chunks/[name]-[hash]',
  });
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  setup();
  await build();
}
