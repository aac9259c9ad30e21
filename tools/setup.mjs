// Installs what is missing: once after a clone, and again when the lock file has changed. Quick
// when nothing has.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const stampFile = join(root, 'node_modules', '.setup-stamp');
const MINIMUM = [20, 19];

/**
 * Checks Node's version and runs `npm ci` when the installed packages are not those of the lock
 * file.
 */
export function setup() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < MINIMUM[0] || (major === MINIMUM[0] && minor < MINIMUM[1])) {
    console.error(
      `Cloudless needs Node.js ${MINIMUM.join('.')} or newer; this is ${process.version}.`,
    );
    process.exit(1);
  }
  const stamp = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .update(process.version)
    .digest('hex');
  if (existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp) return;
  console.log('Installing packages (npm ci) …');
  execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  writeFileSync(stampFile, stamp);
}
