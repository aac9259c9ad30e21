import { errorCodeOf } from '@cloudless/base';
import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { CliIo } from '../../io/io.js';
import { parseManifest } from '../../manifest/parse-manifest.js';
import type { ManifestConfig } from '../../manifest/manifest-config.js';
import type { ManifestRoute } from '../../manifest/manifest-route.js';
import type { ManifestService } from '../../manifest/manifest-service.js';
import type { ManifestWorkload } from '../../manifest/parse-manifest.js';
import { MAX_FILE_BYTES, formatProblem } from '../../manifest/yaml-reader.js';
import type { LocalSession } from '../../call/local-session.js';

/** The objects of manifests. */
export interface ManifestObjects {
  readonly workloads: readonly ManifestWorkload[];
  readonly services: readonly ManifestService[];
  readonly routes: readonly ManifestRoute[];
  readonly configs: readonly ManifestConfig[];
}

/**
 * Reads the workloads, services, routes and configs of manifest files and directories.
 * @param paths - Files; directories, whose .yaml, .yml and .json files are read in the order of
 *   their names; or `-` for standard input.
 * @param consequence - First line of the message that lists problems.
 * @throws {@link CliFailure} with exit code 2: names the first file that cannot be read or the first
 *   directory without manifests; when there is none, lists the problems of all files.
 */
export async function readManifests(
  session: LocalSession,
  paths: readonly string[],
  consequence = 'nothing was applied',
): Promise<ManifestObjects> {
  const workloads: ManifestWorkload[] = [];
  const services: ManifestService[] = [];
  const routes: ManifestRoute[] = [];
  const configs: ManifestConfig[] = [];
  const problems: string[] = [];
  const declaredIn = new Map<string, string>();
  for (const { file, bytes } of await readFiles(session.io, paths)) {
    const manifest = parseManifest(file, bytes, session.settings.namespace);
    problems.push(...manifest.problems.map(formatProblem));
    workloads.push(...manifest.workloads);
    services.push(...manifest.services);
    routes.push(...manifest.routes);
    configs.push(...manifest.configs);
    const names = [
      ...manifest.workloads.map(({ namespace, name }) => `workload ${namespace}/${name}`),
      ...manifest.services.map(({ namespace, name }) => `service ${namespace}/${name}`),
      ...manifest.routes.map(({ namespace, name }) => `route ${namespace}/${name}`),
      ...manifest.configs.map(({ namespace, name }) => `config ${namespace}/${name}`),
    ];
    for (const name of names) {
      const other = declaredIn.get(name);
      // `parseManifest` has reported what one file declares twice.
      if (other !== undefined && other !== file)
        problems.push(`${file}: the ${name} is already declared in ${other}`);
      declaredIn.set(name, file);
    }
  }
  for (const { namespace, name, spec } of workloads) {
    const file = declaredIn.get(`service ${namespace}/${name}`);
    if (spec.expose.length > 0 && file !== undefined)
      problems.push(
        `${file}: the service ${namespace}/${name} is created by spec.expose of the workload of that name; remove one of them`,
      );
  }
  if (problems.length > 0)
    throw new CliFailure(ExitCode.usage, `${consequence}:\n${problems.join('\n')}`);
  return { workloads, services, routes, configs };
}

/**
 * Reads the files of `--filename`.
 * @throws {@link CliFailure} with exit code 2 for a path that cannot be read.
 */
export async function readFiles(
  io: CliIo,
  paths: readonly string[],
): Promise<readonly { readonly file: string; readonly bytes: Uint8Array }[]> {
  const files: { file: string; bytes: Uint8Array }[] = [];
  for (const path of paths) {
    if (path === '-') {
      const bytes = await io.stdin.readAll(MAX_FILE_BYTES);
      if (bytes === undefined)
        throw createUsageFailure('standard input is larger than 1 MiB; split the manifests');
      files.push({ file: '<stdin>', bytes });
      continue;
    }
    if (/^https?:\/\//.test(path))
      throw createUsageFailure(
        `${path}: addresses are not read; use: curl -fsSL ${path} | cloudlessctl … -f -`,
      );
    // Undefined: the path is a file.
    const names = await withPathInError(path, () => io.files.list(path));
    const manifests = names?.filter((name) => /\.(ya?ml|json)$/.test(name)).sort();
    if (manifests?.length === 0)
      throw createUsageFailure(`${path}: no .yaml, .yml or .json file in this directory`);
    for (const file of manifests?.map((name) => `${path.replace(/\/+$/, '')}/${name}`) ?? [path]) {
      files.push({ file, bytes: await withPathInError(file, () => io.files.read(file)) });
    }
  }
  return files;
}

async function withPathInError<Result>(path: string, read: () => Promise<Result>): Promise<Result> {
  try {
    return await read();
  } catch (reason) {
    const missing = errorCodeOf(reason) === 'ENOENT';
    const message = missing
      ? 'no such file or directory'
      : reason instanceof Error
        ? reason.message
        : String(reason);
    throw new CliFailure(ExitCode.usage, `${path}: ${message}`, { cause: reason });
  }
}
