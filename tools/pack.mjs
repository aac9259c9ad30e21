// `npm run pack`: packs coordinator, agent and cloudlessctl for machines without a checkout, into
// dist/packages. Each archive installs with `npm install --global FILE`, without a registry.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { buildAgent, coordinatorBundle } from './build.mjs';
import { packCli } from './pack-cli.mjs';
import { packProgram } from './pack/pack-program.mjs';
import { root, setup } from './setup.mjs';

/**
 * Packs all programs.
 * @param folder - the folder for the files; must exist.
 * @returns the paths of the archives, and of the single file of cloudlessctl.
 */
export async function packAll(folder) {
  const { build } = await import('esbuild');
  const coordinator = await packProgram({
    folder,
    app: 'coordinator',
    name: 'cloudless-coordinator',
    description: 'The coordinator of a Cloudless cluster: API, scheduler, rollouts and state.',
    writeBundle: (stage) =>
      build({ ...coordinatorBundle, outdir: stage, sourcemap: false, metafile: true }),
    native: [{ name: 'lmdb', from: 'libs/state-store-lmdb', isRequired: true }],
  });
  const agent = await packProgram({
    folder,
    app: 'agent',
    name: 'cloudless-agent',
    description: 'The agent of a Cloudless cluster: runs workloads on a machine.',
    writeBundle: (stage) => buildAgent({ outdir: stage, sourcemap: false }),
    // Without it the agent has no terminals (`exec -t`).
    native: [
      {
        name: '@lydell/node-pty',
        from: 'libs/runtime-process',
        // The agent uses the native module, and none of the JavaScript around it.
        keepFile: (file) => /^(?:requireBinary\.js|pty\.node|spawn-helper)$/.test(file),
        isRequired: false,
      },
    ],
  });
  const { archive, file } = await packCli(folder);
  return { coordinator, agent, cli: archive, cliFile: file };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  setup();
  const folder = join(root, 'dist/packages');
  mkdirSync(folder, { recursive: true });
  console.log(Object.values(await packAll(folder)).join('\n'));
}
