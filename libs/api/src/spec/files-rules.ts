import { isPathWithin, type Violation } from '@cloudless/base';
import { Reload_Mode as ReloadMode, type FileKey, type Reload, type WorkloadSpec } from '../gen.js';
import { findPathProblem } from './absolute-path.js';

/** Capability of nodes that deliver secrets and configs to their replicas. */
export const FILES_CAPABILITY = 'files.secrets';
/** Capability of nodes that send a signal to a replica whose files have changed. */
export const FILES_SIGNAL_CAPABILITY = 'files.signal';
/** Capability of nodes that pull images with the credentials in `image_pull.secret`. */
export const IMAGE_CREDENTIALS_CAPABILITY = 'images.credentials';

/** Signals that `reload.signal` may name. */
export const RELOAD_SIGNALS: readonly string[] = [
  ...['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'],
];
/** The signal of the mode SIGNAL when the spec names none. */
export const DEFAULT_RELOAD_SIGNAL = 'SIGHUP';
/** Directory below which the files of secrets are in containers. */
export const SECRETS_DIRECTORY = '/run/secrets';
/** Directory below which the files of configs are in containers. */
export const CONFIGS_DIRECTORY = '/run/configs';
/** Environment variables with the directories of the files, in containers and processes. */
export const FILES_VARIABLES = {
  secrets: 'CLOUDLESS_SECRETS_DIR',
  configs: 'CLOUDLESS_CONFIGS_DIR',
} as const;

/** The fields that references to secrets and configs share. */
interface FileRef {
  readonly name: string;
  readonly env: string;
  mountPath: string;
  readonly keys: readonly FileKey[];
  readonly version: number;
  readonly reload?: Reload | undefined;
}

/**
 * Sets the defaults of references to secrets and configs, in place: directories of containers, names
 * of files, and signals. `mode` 0 stays, because its meaning depends on the user of the container.
 */
export function fillFiles({ image, secrets, configs }: WorkloadSpec): void {
  const isContainer = image !== '';
  for (const ref of secrets) fillFileRef(ref, isContainer ? SECRETS_DIRECTORY : undefined);
  for (const ref of configs) fillFileRef(ref, isContainer ? CONFIGS_DIRECTORY : undefined);
}

function fillFileRef(ref: FileRef, directory: string | undefined): void {
  if (directory !== undefined && ref.mountPath === '' && hasFiles(ref))
    ref.mountPath = `${directory}/${ref.name}`;
  for (const key of ref.keys) if (key.env === '' && key.file === '') key.file = key.key;
  const { reload } = ref;
  if (reload?.mode === ReloadMode.SIGNAL && reload.signal === '')
    reload.signal = DEFAULT_RELOAD_SIGNAL;
}

/** Returns true when at least one value of the reference is a file. */
function hasFiles({ env, keys }: FileRef): boolean {
  return env === '' && (keys.length === 0 || keys.some((key) => key.env === ''));
}

/** Validates references to secrets and configs. */
export function* validateFiles(spec: WorkloadSpec): Generator<Violation> {
  const used: UsedNames = {
    variables: new Map([
      ...Object.keys(spec.env).map((name) => [name, 'spec.env'] as const),
      ...Object.values(FILES_VARIABLES).map((name) => [name, 'Cloudless'] as const),
    ]),
    directories: new Map(
      spec.volumes.map(({ mountPath }, index) => [mountPath, `spec.volumes[${index}]`] as const),
    ),
  };
  const lists = [
    ['secrets', SECRETS_DIRECTORY, spec.secrets],
    ['configs', CONFIGS_DIRECTORY, spec.configs],
  ] as const;
  for (const [kind, directory, refs] of lists) {
    const names = new Set<string>();
    for (const [index, ref] of refs.entries()) {
      const path = `spec.${kind}[${index}]`;
      if (names.has(ref.name))
        yield { field: `${path}.name`, message: `"${ref.name}" is used twice; use one reference` };
      names.add(ref.name);
      yield* validateFileRef(ref, path, directory, spec.image !== '', used);
    }
  }
  const pullSecret = spec.imagePull?.secret ?? '';
  const problem = pullSecret === '' ? undefined : findSecretNameProblem(pullSecret);
  if (problem !== undefined) yield { field: 'spec.image_pull.secret', message: problem };
}

/**
 * Explains why a name is not that of a secret; undefined for a possible name. The text does not repeat
 * the name, which may be a token or key in the wrong field.
 */
export function findSecretNameProblem(name: string): string | undefined {
  return NAME.test(name)
    ? undefined
    : 'must be the name of a secret: DNS labels with dots between them';
}

/** Names of variables and directories so far, each with the field that uses the name. */
interface UsedNames {
  readonly variables: Map<string, string>;
  readonly directories: Map<string, string>;
}

const NAME = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

function* validateFileRef(
  ref: FileRef,
  path: string,
  directory: string,
  isContainer: boolean,
  used: UsedNames,
): Generator<Violation> {
  if (!NAME.test(ref.name))
    yield { field: `${path}.name`, message: 'is required: DNS labels with dots between them' };
  if (ref.env !== '' && ref.keys.length > 0)
    yield {
      field: `${path}.env`,
      message: 'cannot be combined with keys; name the variable there',
    };
  if (ref.env !== '' && ref.mountPath !== '')
    yield { field: `${path}.mount_path`, message: 'cannot be combined with env' };
  yield* validateMountPath(ref, path, directory, isContainer, used);
  yield* validateKeys(ref, path, used);
  yield* validateReload(ref, path);
}

function* validateMountPath(
  ref: FileRef,
  path: string,
  directory: string,
  isContainer: boolean,
  { directories }: UsedNames,
): Generator<Violation> {
  const field = `${path}.mount_path`;
  const { mountPath } = ref;
  if (mountPath !== '' && !isContainer) {
    const message =
      'a process has no mounts; its files are below the directories that CLOUDLESS_SECRETS_DIR and CLOUDLESS_CONFIGS_DIR name';
    yield { field, message };
    return;
  }
  const problem = mountPath === '' ? undefined : findPathProblem(mountPath);
  if (problem !== undefined) yield { field, message: problem };
  if (mountPath === '/') yield { field, message: 'must not be the root directory' };
  if (mountPath !== '' && !hasFiles(ref) && ref.env === '')
    yield { field, message: 'has no effect, because all keys are environment variables' };
  if (!isContainer || !hasFiles(ref)) return;
  const resolved = mountPath === '' ? `${directory}/${ref.name}` : mountPath;
  const other = [...directories].find(
    ([known]) =>
      known === resolved || isPathWithin(known, resolved) || isPathWithin(resolved, known),
  );
  if (other !== undefined && (other[0] === resolved || !other[1].startsWith('spec.volumes')))
    yield { field, message: `${resolved} overlaps ${other[0]} of ${other[1]}; use another one` };
  directories.set(resolved, path);
}

function* validateKeys(ref: FileRef, path: string, { variables }: UsedNames): Generator<Violation> {
  function* useVariable(name: string, field: string): Generator<Violation> {
    const other = variables.get(name);
    if (name.includes('\0')) yield { field, message: 'must not contain a NUL character' };
    if (other === undefined) variables.set(name, field);
    else yield { field, message: `variable "${name}" is set by ${other} too; use another name` };
  }
  if (ref.env !== '') yield* useVariable(ref.env, `${path}.env`);
  const files = new Set<string>();
  for (const [index, { key, env, file }] of ref.keys.entries()) {
    const field = `${path}.keys[${index}]`;
    if (env !== '') {
      if (file !== '') yield { field: `${field}.file`, message: 'cannot be combined with env' };
      yield* useVariable(env, `${field}.env`);
      continue;
    }
    const name = file === '' ? key : file;
    if (files.has(name))
      yield { field: `${field}.file`, message: `file "${name}" is written twice` };
    files.add(name);
  }
}

function* validateReload(ref: FileRef, path: string): Generator<Violation> {
  const { mode = ReloadMode.RESTART, signal = '' } = ref.reload ?? {};
  const field = `${path}.reload`;
  if (signal !== '' && mode !== ReloadMode.SIGNAL)
    yield { field: `${field}.signal`, message: 'needs the mode SIGNAL' };
  if (signal !== '' && !RELOAD_SIGNALS.includes(signal))
    yield { field: `${field}.signal`, message: `must be one of ${RELOAD_SIGNALS.join(', ')}` };
  const hasVariables = ref.env !== '' || ref.keys.some(({ env }) => env !== '');
  if (mode !== ReloadMode.RESTART && hasVariables)
    yield {
      field: `${field}.mode`,
      message: 'must be RESTART, because variables of a running process do not change; use files',
    };
}
