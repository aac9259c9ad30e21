// Packs a program as an npm package that installs from one file: `npm install --global FILE`.
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../setup.mjs';
import { requireLockedVersions } from './locked-versions.mjs';
import { copyNativePackage } from './native-packages.mjs';

/** Reads a JSON file; its path is relative to the root of the repository. */
export const readJson = (file) => JSON.parse(readFileSync(join(root, file), 'utf8'));

/**
 * First lines of a program that a shell starts with Node.js. The "--" ends the options of Node.js,
 * which would otherwise take an option of the program such as --env-file for its own.
 */
export const LAUNCHER = `#!/bin/sh\n':' //; exec node -- "$0" "$@"\n`;

/**
 * Packs a program.
 * @param folder - the folder for the archive; must exist.
 * @param app - the name of the folder below `apps`.
 * @param name - the name of the package and of its command.
 * @param description - one sentence for `package.json`.
 * @param writeBundle - writes the bundle, with an entry named main, into a folder; resolves with the
 *   result of esbuild, whose metafile names the packages in the bundle.
 * @param native - packages with native code: `name`, `from` and `keepFile` as for
 *   {@link copyNativePackage}; `isRequired`: the program does not start without it.
 * @returns the path of the archive.
 */
export async function packProgram({ folder, app, name, description, writeBundle, native = [] }) {
  const { version, license } = readJson(`apps/${app}/package.json`);
  const { engines } = readJson('package.json');
  const stage = join(folder, name);
  rmSync(stage, { recursive: true, force: true });
  mkdirSync(join(stage, 'bin'), { recursive: true });
  const { metafile } = await writeBundle(stage);
  requireLockedVersions(Object.keys(metafile.inputs));
  const copied = native.map(({ isRequired, ...options }) => ({
    isRequired,
    ...copyNativePackage({ stage, ...options }),
  }));
  const dependenciesWhere = (isRequired) =>
    Object.fromEntries(
      copied.filter((each) => each.isRequired === isRequired).map(({ packages }) => packages[0]),
    );
  const cpu = copied.filter(({ isRequired }) => isRequired).flatMap(({ cpus }) => cpus);
  writeFileSync(
    join(stage, 'package.json'),
    `${JSON.stringify(
      {
        name,
        version,
        description,
        license,
        type: 'module',
        bin: { [name]: `bin/${name}.mjs` },
        engines,
        // npm refuses the package on another processor, instead of a program that cannot start.
        ...(cpu.length > 0 ? { os: [process.platform], cpu } : {}),
        dependencies: dependenciesWhere(true),
        optionalDependencies: dependenciesWhere(false),
        bundleDependencies: copied.flatMap(({ packages }) => packages.map(([each]) => each)),
      },
      undefined,
      2,
    )}\n`,
  );
  writeFileSync(join(stage, `bin/${name}.mjs`), `${LAUNCHER}import '../main.mjs';\n`);
  chmodSync(join(stage, `bin/${name}.mjs`), 0o755);
  copyFileSync(join(root, `apps/${app}/README.md`), join(stage, 'README.md'));
  copyFileSync(join(root, 'LICENSE'), join(stage, 'LICENSE'));
  const npm = ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder, stage];
  execFileSync('npm', npm, { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] });
  rmSync(stage, { recursive: true });
  return join(folder, `${name}-${version}.tgz`);
}
