// Bundles each app into dist/apps/<app>/main.mjs. Run it alone with `npm run build`.
import { pathToFileURL } from 'node:url';
import { root, setup } from './setup.mjs';

const apps = ['coordinator', 'agent', 'cloudlessctl', 'dev-cluster'];

/** @returns when all bundles are written */
export async function build() {
  const { build: bundle } = await import('esbuild');
  await bundle({
    absWorkingDir: root,
    entryPoints: Object.fromEntries(apps.map((app) => [`${app}/main`, `apps/${app}/src/main.ts`])),
    outdir: 'dist/apps',
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
  });
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  setup();
  await build();
}
