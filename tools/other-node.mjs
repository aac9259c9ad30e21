// A second Node.js, beside the one that runs this program, to test Cloudless on.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './setup.mjs';

/**
 * The newest release with long-term support that Cloudless is tested on. Node.js 26 up to 26.10.0
 * aborts (`Http2Session::CheckAllocatedSize`) when a peer resets many HTTP/2 streams with unsent
 * data; `overload-protection.spec.ts` of rpc-node shows it.
 */
export const NEWEST_LTS = '24.21.0';

/**
 * Installs a Node.js from the npm packages that contain its binary, once, below `node_modules`.
 * @param version - such as `24.21.0`.
 * @returns the path of the `node` binary.
 * @throws when the platform has no such package, or npm cannot install the package.
 */
export function installNode(version) {
  const name = `node-${process.platform}-${process.arch}`;
  const folder = join(root, 'node_modules', '.cache', `cloudless-node-${version}`);
  const binary = join(folder, 'node_modules', name, 'bin', 'node');
  if (!existsSync(binary)) {
    mkdirSync(folder, { recursive: true });
    const npm = ['install', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund'];
    execFileSync('npm', [...npm, '--no-save', '--no-package-lock', `${name}@${version}`], {
      cwd: folder,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  }
  const found = execFileSync(binary, ['--version'], { encoding: 'utf8' }).trim();
  if (found !== `v${version}`) throw new Error(`${binary} is Node.js ${found}, not v${version}`);
  return binary;
}
