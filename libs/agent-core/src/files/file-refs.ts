import { CloudlessError } from '@cloudless/base';
import {
  CONFIGS_DIRECTORY,
  DEFAULT_RELOAD_SIGNAL,
  FILES_VARIABLES,
  SECRETS_DIRECTORY,
  Reload_Mode as ReloadMode,
  ReplicaFilesVersion_Kind as FilesKind,
  type FileKey,
  type ReplicaFilesVersion,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ContainerSignal } from '@cloudless/runtime';
import { toCredentialReader } from '../workload-identity/to-credential-reader.js';
import type { FileSet } from './replica-file-store.js';

/** Directories of the files inside containers, and below the directory of a replica. */
const DIRECTORIES = { secrets: SECRETS_DIRECTORY, configs: CONFIGS_DIRECTORY } as const;
/** Permission bits of files that only the owner, or every user, may read. */
const OWNER_MODE = 0o400;
const PUBLIC_MODE = 0o444;

/** One reference of a spec to a secret or config. */
export interface FileRef {
  readonly field: 'secrets' | 'configs';
  readonly kind: FilesKind.SECRET | FilesKind.CONFIG;
  readonly name: string;
  /** Variable with the only value; empty: the values go where `keys` says. */
  readonly env: string;
  /** Directory inside a container. */
  readonly mountPath: string;
  readonly keys: readonly FileKey[];
  readonly mode: number;
  readonly reload: ReloadMode;
  /** Signal after a change of the files; undefined unless `reload` is SIGNAL. */
  readonly signal: ContainerSignal | undefined;
}

type FileSpec = Pick<WorkloadSpec, 'secrets' | 'configs' | 'imagePull' | 'image' | 'security'>;

/** Returns the name of the secret with the credentials for the registry; empty: none. */
export function toPullSecret({ image, imagePull }: FileSpec): string {
  return image === '' ? '' : (imagePull?.secret ?? '');
}

/** Returns true when the coordinator has values for replicas of the spec. */
export function usesFiles(spec: FileSpec): boolean {
  return spec.secrets.length > 0 || spec.configs.length > 0 || toPullSecret(spec) !== '';
}

/** Returns the references of a spec to secrets and configs, with all defaults. */
export function listFileRefs(spec: FileSpec): readonly FileRef[] {
  const { image, security } = spec;
  const isUserKnown = image === '' || security?.runAsUser !== undefined;
  const secretMode = isUserKnown ? OWNER_MODE : PUBLIC_MODE;
  const toRef = (
    field: FileRef['field'],
    kind: FileRef['kind'],
    ref: WorkloadSpec['configs'][number] | WorkloadSpec['secrets'][number],
    defaultMode: number,
  ): FileRef => {
    const reload = ref.reload?.mode ?? ReloadMode.RESTART;
    const signal = ref.reload?.signal ?? '';
    return {
      ...{ field, kind, name: ref.name, env: ref.env, keys: ref.keys, reload },
      mountPath: ref.mountPath === '' ? `${DIRECTORIES[field]}/${ref.name}` : ref.mountPath,
      mode: ref.mode === 0 ? defaultMode : ref.mode,
      signal:
        reload === ReloadMode.SIGNAL
          ? ((signal === '' ? DEFAULT_RELOAD_SIGNAL : signal) as ContainerSignal)
          : undefined,
    };
  };
  return [
    ...spec.secrets.map((ref) => toRef('secrets', FilesKind.SECRET, ref, secretMode)),
    ...spec.configs.map((ref) => toRef('configs', FilesKind.CONFIG, ref, PUBLIC_MODE)),
  ];
}

/** Identifies a reference within its spec. */
export function toRefId({ kind, name }: Pick<ReplicaFilesVersion, 'kind' | 'name'>): string {
  return `${FilesKind[kind].toLowerCase()} ${name}`;
}

/** Returns true when at least one value of the reference is a file. */
export function hasFiles({ env, keys }: FileRef): boolean {
  return env === '' && (keys.length === 0 || keys.some((key) => key.env === ''));
}

/** Returns the directory of a reference, below the directory of the replica. */
export function toRefDirectory({ field, name }: FileRef): string {
  return `${field}/${name}`;
}

/**
 * Returns the files of a reference; undefined when all values are environment variables.
 * @throws kind `precondition` when the values lack a key of the spec.
 */
export function toFileSet(
  ref: FileRef,
  { uid, version }: Pick<ReplicaFilesVersion, 'uid' | 'version'>,
  data: ReadonlyMap<string, Uint8Array>,
  spec: FileSpec,
): FileSet | undefined {
  if (!hasFiles(ref)) return undefined;
  const keys = ref.keys.filter(({ env }) => env === '');
  const files =
    ref.keys.length === 0
      ? data
      : new Map(
          keys.map(
            ({ key, file }) => [file === '' ? key : file, requireKey(ref, data, key)] as const,
          ),
        );
  return {
    directory: toRefDirectory(ref),
    revision: `${uid} ${version}`,
    files,
    mode: ref.mode,
    reader: spec.image === '' ? {} : toCredentialReader(spec),
  };
}

/**
 * Returns the environment variables with values of a reference.
 * @throws kind `precondition` when the values lack a key, or a value cannot be a variable.
 */
export function toVariables(
  ref: FileRef,
  data: ReadonlyMap<string, Uint8Array>,
): Readonly<Record<string, string>> {
  if (ref.env !== '') {
    const [only, ...others] = data;
    if (only === undefined || others.length > 0)
      throw new CloudlessError(
        'precondition',
        `${toRefId(ref)} has ${data.size} keys, and env needs a single key; name the key in keys`,
      );
    return { [ref.env]: toText(ref, only[0], only[1]) };
  }
  return Object.fromEntries(
    ref.keys
      .filter(({ env }) => env !== '')
      .map(({ key, env }) => [env, toText(ref, key, requireKey(ref, data, key))] as const),
  );
}

/**
 * Returns the variables with the directories of secrets and configs.
 * @param replicaDirectory - Directory of a process; undefined for a container.
 */
export function toDirectoryVariables(
  refs: readonly FileRef[],
  replicaDirectory: string | undefined,
): Readonly<Record<string, string>> {
  const fields = new Set(refs.map(({ field }) => field));
  return Object.fromEntries(
    [...fields].map((field) => [
      FILES_VARIABLES[field],
      replicaDirectory === undefined ? DIRECTORIES[field] : `${replicaDirectory}/${field}`,
    ]),
  );
}

function requireKey(ref: FileRef, data: ReadonlyMap<string, Uint8Array>, key: string): Uint8Array {
  const value = data.get(key);
  if (value !== undefined) return value;
  throw new CloudlessError('precondition', `${toRefId(ref)} has no key ${key}`);
}

function toText(ref: FileRef, key: string, value: Uint8Array): string {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(value);
    if (!text.includes('\0')) return text;
  } catch {
    // Not UTF-8: the error below.
  }
  throw new CloudlessError(
    'precondition',
    `key ${key} of ${toRefId(ref)} is not text in UTF-8 without zero bytes, so it cannot be an environment variable; use a file`,
  );
}
