import { execFileSync } from 'node:child_process';
import { mkdirSync, renameSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
/**
 * Folder of the bundles: in the workspace, so that a bundle finds the optional packages of this
 * library.
 */
const CACHE = path.join(
  path.dirname(path.dirname(require.resolve('esbuild/package.json'))),
  '.cache/cloudless-runtime-process',
);

/**
 * Bundles a program of this folder, as the build of the agent does, and returns the command that
 * runs it. A spec starts a supervisor for each test; a bundle starts in a third of the time of a
 * program that is compiled at each start.
 * @param name - Name of the source file without its extension.
 */
export function bundleProgram(name: string): readonly string[] {
  const source = fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
  const bundle = path.join(CACHE, `${name}.mjs`);
  const draft = path.join(CACHE, `${name}.${process.pid}.mjs`);
  mkdirSync(CACHE, { recursive: true });
  execFileSync(require.resolve('esbuild/bin/esbuild'), [
    ...[source, '--bundle', '--platform=node', '--format=esm', '--log-level=warning'],
    ...['--conditions=@cloudless/source', `--outfile=${draft}`],
  ]);
  renameSync(draft, bundle); // specs that run at the same time may start the bundle at any moment
  return [process.execPath, bundle];
}
