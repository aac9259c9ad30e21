import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { runToEnd } from './processes.js';
import { REQUEST_APP_FILE } from './rollout-tools.js';

/** Reference of the image in workloads. The test registry serves it in place of docker.io. */
export const REQUEST_IMAGE = 'cloudless/request-app:1';
/** Paths in the image. */
const NODE = '/usr/bin/node';
const APP = '/app/request-app.mjs';

/**
 * Builds an image of `request-app.mjs` with the Node.js binary of this test, and pushes the image.
 * @param registry - Address of the registry, as `host:port`.
 */
export async function pushRequestImage(registry: string): Promise<void> {
  const home = mkdtempSync(join(tmpdir(), 'cloudless-image-'));
  try {
    const root = join(home, 'root');
    for (const library of await listLibraries(process.execPath))
      copyFile(library, join(root, library));
    copyFile(process.execPath, join(root, NODE));
    copyFile(REQUEST_APP_FILE, join(root, APP));
    const [layout, image] = [join(home, 'layout'), join(home, 'layout:app')];
    await run('umoci', 'init', '--layout', layout);
    await run('umoci', 'new', '--image', image);
    await run('umoci', 'insert', '--image', image, root, '/');
    // without a shell, the server is the main process of its container and receives SIGTERM
    await run(
      'umoci',
      'config',
      '--image',
      image,
      '--config.entrypoint',
      NODE,
      '--config.entrypoint',
      APP,
    );
    const flags = ['--insecure-policy', 'copy', '-q', '--dest-tls-verify=false'];
    await run('skopeo', ...flags, `oci:${image}`, `docker://${registry}/${REQUEST_IMAGE}`);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

/** Returns the paths of the shared libraries and of the loader of a program. */
async function listLibraries(program: string): Promise<readonly string[]> {
  const output = await run('ldd', program);
  return [...output.matchAll(/(?:=> |^\s+)(?<path>\/\S+) \(0x/gm)].flatMap(
    ({ groups }) => groups?.['path'] ?? [],
  );
}

function copyFile(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to, { dereference: true });
}

/** Runs a program and returns its stdout; throws when the program fails. */
async function run(command: string, ...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runToEnd(command, args);
  if (code !== 0) throw new Error(`${[command, ...args].join(' ')}: ${stderr || stdout}`);
  return stdout;
}
