// Bundles each app into dist/apps/<app>/main.mjs. Run it alone with `npm run build`.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { root, setup } from './setup.mjs';

/**
 * Returns the commit that the bundles show in their version: 12 hex digits, with `-dirty` when the
 * clone has changes that are not committed.
 * @param folder - root of the sources
 * @returns undefined without git, and when the folder is not the root of a clone
 */
export function readCommit(folder) {
  const git = (...words) => {
    const { status, stdout } = spawnSync('git', ['--no-optional-locks', ...words], {
      cwd: folder,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    return status === 0 ? stdout.trim() : undefined;
  };
  // The sources of an unpacked archive may lie inside the clone of another project.
  if (git('rev-parse', '--show-prefix') !== '') return undefined;
  const commit = git('describe', '--always', '--dirty', '--abbrev=12', '--exclude=*');
  return commit === undefined || !/^[0-9a-f]{12,}(-dirty)?$/.test(commit) ? undefined : commit;
}

const commit = readCommit(root);

// Only functions import packages: `npm run build` loads this file before `setup` installs them.

/** Options of every bundle. */
const common = {
  absWorkingDir: root,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'esm',
  conditions: ['@cloudless/source'],
  // See libs/app-kit/src/version.ts.
  define: commit === undefined ? {} : { CLOUDLESS_COMMIT: JSON.stringify(commit) },
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

/** The bundle of the coordinator, with the thread that ends the process when the store hangs. */
export const coordinatorBundle = {
  ...common,
  entryPoints: {
    main: 'apps/coordinator/src/main.ts',
    'watchdog-worker': 'apps/coordinator/src/watchdog/watchdog-worker.ts',
  },
  outdir: 'dist/apps/coordinator',
};

/**
 * The bundles of the agent: a small entry, which loads the code of one command, and the thread that
 * keeps the lease while the main loop stands still. The bundle of each command contains all code of
 * the command, so that a process reads no file after its start and survives the replacement of the
 * files. The code of `run` and `reset` is in two bundles: `agent-command` locks the data directory
 * and starts the network proxy, and loads `full-agent` at once then, also as a part of the start. A
 * network proxy loads `proxy-tracing` when it starts, if it sends traces.
 */
const agentBundle = {
  ...common,
  entryPoints: {
    main: 'apps/agent/src/main.ts',
    'agent-command': 'apps/agent/src/agent-command.ts',
    'full-agent': 'apps/agent/src/full-agent.ts',
    'supervisor-command': 'apps/agent/src/supervisor-command.ts',
    'proxy-tracing': 'apps/agent/src/proxy-tracing.ts',
    'lease-worker': 'apps/agent/src/lease/lease-worker.ts',
  },
  outdir: 'dist/apps/agent',
};

/** The bundle of the network proxy, beside those of the agent; see `createPruning`. */
const networkProxyBundle = {
  ...common,
  entryPoints: { 'network-proxy-command': 'apps/agent/src/network-proxy-command.ts' },
  outdir: agentBundle.outdir,
};

const devClusterBundle = {
  ...common,
  entryPoints: { main: 'apps/dev-cluster/src/main.ts' },
  outdir: 'dist/apps/dev-cluster',
};

/**
 * Writes all bundles of the agent.
 * @param options - options of esbuild in place of those of the bundles, such as `outdir`
 * @returns the metafile of all bundles
 */
export async function buildAgent(options = {}) {
  const { build: bundle } = await import('esbuild');
  const [agent, proxy] = await Promise.all([
    bundle({ ...agentBundle, ...options, metafile: true }),
    buildNetworkProxy({ ...options, metafile: true }),
  ]);
  const merge = (key) => ({ ...agent.metafile[key], ...proxy.metafile[key] });
  return { metafile: { inputs: merge('inputs'), outputs: merge('outputs') } };
}

/**
 * Writes the bundle of the network proxy.
 * @param options - as for `buildAgent`
 * @returns the result of esbuild
 */
export async function buildNetworkProxy(options = {}) {
  const { createPruning } = await import('./bundle/prune-definitions.mjs');
  const plugins = [createPruning(await bundleWholeNetworkProxy())];
  const { build: bundle } = await import('esbuild');
  return bundle({ ...networkProxyBundle, ...options, plugins });
}

/** @returns the text of the bundle of the network proxy with all API definitions */
export async function bundleWholeNetworkProxy() {
  const { build: bundle } = await import('esbuild');
  const { outputFiles } = await bundle({ ...networkProxyBundle, sourcemap: false, write: false });
  return outputFiles[0].text;
}

/** @returns when all bundles are written */
export async function build() {
  const { build: bundle } = await import('esbuild');
  const [{ metafile }] = await Promise.all([
    bundle({ ...cliBundle, metafile: true }),
    buildAgent(),
    ...[coordinatorBundle, devClusterBundle].map(bundle),
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
