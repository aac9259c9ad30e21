import { create } from '@bufbuild/protobuf';
import { Reload_Mode, type ConfigRef, type SecretRef, type WorkloadSpec } from '@cloudless/api';
import {
  FilesGuardRecordSchema,
  FilesUseRecordSchema,
  type ConfigRecord,
  type SecretRecord,
} from '@cloudless/api/store';
import { toConfigKeyId, toSecretKeyId } from '../records/records.js';
import type { ClusterView } from '../view/view.js';
import type { Transaction } from './transaction.js';

/** The objects that a spec names for values: `secrets` and `configs`, as the fields of the spec. */
export type FileKind = 'secrets' | 'configs';

/** A reference of a spec to a secret or config. */
export type FileRef =
  | { readonly kind: 'secrets'; readonly ref: SecretRef; readonly index: number }
  | { readonly kind: 'configs'; readonly ref: ConfigRef; readonly index: number };

/** The part of a view that decides about secrets and configs. */
export type FilesView = Pick<ClusterView, 'config' | 'secret' | 'filesGuard' | 'filesUse'>;

/**
 * The versions of secrets and configs that a new version of a workload keeps, by kind and name: those
 * that were the newest when the version of the workload was created.
 */
export type FilePins = Readonly<Record<FileKind, ReadonlyMap<string, number>>>;

/** The pins of a spec without references. */
export const NO_PINS: FilePins = { secrets: new Map(), configs: new Map() };

/** Returns the references of a spec to secrets and configs. */
export function listFileRefs({
  secrets,
  configs,
}: Pick<WorkloadSpec, 'secrets' | 'configs'>): readonly FileRef[] {
  return [
    ...secrets.map((ref, index) => ({ kind: 'secrets', ref, index }) as const),
    ...configs.map((ref, index) => ({ kind: 'configs', ref, index }) as const),
  ];
}

/** Returns true when a new version of the secret or config makes a new version of the workload. */
export function isRotated({ version, reload }: SecretRef | ConfigRef): boolean {
  return version === 0 && (reload?.mode ?? Reload_Mode.RESTART) === Reload_Mode.RESTART;
}

/** Returns the number of the newest version; undefined when there is no such secret or config. */
export function findNewestVersion(
  view: Pick<FilesView, 'config' | 'secret'>,
  kind: FileKind,
  namespace: string,
  name: string,
): number | undefined {
  return findRecord(view, kind, namespace, name)?.version;
}

/** Returns the keys of a version; undefined when the secret, the config or its version is missing. */
export function findVersionKeys(
  view: Pick<FilesView, 'config' | 'secret'>,
  kind: FileKind,
  {
    namespace,
    name,
    version,
  }: { readonly namespace: string; readonly name: string; readonly version: number },
): readonly string[] | undefined {
  const record = findRecord(view, kind, namespace, name);
  const found = record?.versions.find((kept) => kept.version === version);
  return found === undefined ? undefined : Object.keys(found.sizes).sort();
}

/** Returns the numbers of the kept versions, ascending; undefined when the object does not exist. */
export function listKeptVersions(
  view: Pick<FilesView, 'config' | 'secret'>,
  kind: FileKind,
  namespace: string,
  name: string,
): readonly number[] | undefined {
  return findRecord(view, kind, namespace, name)?.versions.map(({ version }) => version);
}

function findRecord(
  view: Pick<FilesView, 'config' | 'secret'>,
  kind: FileKind,
  namespace: string,
  name: string,
): SecretRecord | ConfigRecord | undefined {
  return kind === 'configs'
    ? view.config(toConfigKeyId(namespace, name))?.value
    : view.secret(toSecretKeyId(namespace, name))?.value;
}

/** Returns the versions that a version of a workload keeps when it is created now. */
export function resolvePins(view: FilesView, namespace: string, spec: WorkloadSpec): FilePins {
  const pins = { secrets: new Map<string, number>(), configs: new Map<string, number>() };
  for (const { kind, ref } of listFileRefs(spec)) {
    if (!isRotated(ref)) continue;
    const version = findNewestVersion(view, kind, namespace, ref.name);
    if (version !== undefined) pins[kind].set(ref.name, version);
  }
  return pins;
}

/** Writes pins into a template, in place. */
export function applyPins(template: WorkloadSpec, pins: FilePins): WorkloadSpec {
  for (const { kind, ref } of listFileRefs(template))
    if (isRotated(ref)) ref.version = pins[kind].get(ref.name) ?? 0;
  return template;
}

/**
 * Writes the versions that an older version of a workload had into a spec, in place, so that the
 * change that restores this version is not followed by a rotation at once. A reference whose version
 * is still the newest stays without a version, so that later rotations reach it.
 * @param pinned - The template of the older version.
 */
export function restorePins(
  spec: WorkloadSpec,
  pinned: WorkloadSpec | undefined,
  view: FilesView,
  namespace: string,
): WorkloadSpec {
  if (pinned === undefined) return spec;
  const versions = new Map(
    listFileRefs(pinned).map(({ kind, ref }) => [`${kind}/${ref.name}`, ref]),
  );
  for (const { kind, ref } of listFileRefs(spec)) {
    const version = versions.get(`${kind}/${ref.name}`)?.version ?? 0;
    if (!isRotated(ref) || version === 0) continue;
    if (version !== findNewestVersion(view, kind, namespace, ref.name)) ref.version = version;
  }
  return spec;
}

/**
 * Describes the versions that a spec names and an earlier one does not, for events:
 * `secret db stays at version 3`. Empty when there are none.
 */
export function describeNewPins(before: WorkloadSpec | undefined, after: WorkloadSpec): string {
  const known = new Map(
    (before === undefined ? [] : listFileRefs(before)).map(({ kind, ref }) => [
      `${kind}/${ref.name}`,
      ref.version,
    ]),
  );
  return listFileRefs(after)
    .filter(({ kind, ref }) => ref.version !== 0 && known.get(`${kind}/${ref.name}`) === 0)
    .map(({ kind, ref }) => `${toNoun(kind)} ${ref.name} stays at version ${ref.version}`)
    .join(', ');
}

/** Returns the noun of a kind: `secret` or `config`. */
export function toNoun(kind: FileKind): 'secret' | 'config' {
  return kind === 'secrets' ? 'secret' : 'config';
}

/**
 * Makes the commit conflict with every transaction that adds a use of a secret or config of the
 * namespace meanwhile, and these conflict with the commit. Every change of a secret or config calls
 * this function.
 */
export function putFilesGuard(
  view: Pick<ClusterView, 'filesGuard' | 'filesUse'>,
  transaction: Transaction,
  namespace: string,
): Transaction {
  const guard = view.filesGuard(namespace);
  const changes = (guard?.value.changes ?? 0n) + 1n;
  return transaction
    .require('filesguard', namespace, guard ?? 'absent')
    .require('filesuse', namespace, view.filesUse(namespace) ?? 'absent')
    .put('filesguard', namespace, create(FilesGuardRecordSchema, { changes }));
}

/**
 * Makes the commit conflict with every change of a secret or config of the namespace, and these
 * conflict with the commit. Every transaction that makes a version of a workload with references
 * calls this function. Such transactions do not conflict with each other.
 */
export function putFilesUse(
  view: Pick<ClusterView, 'filesGuard' | 'filesUse'>,
  transaction: Transaction,
  namespace: string,
): Transaction {
  const changes = (view.filesUse(namespace)?.value.changes ?? 0n) + 1n;
  return transaction
    .require('filesguard', namespace, view.filesGuard(namespace) ?? 'absent')
    .put('filesuse', namespace, create(FilesUseRecordSchema, { changes }));
}
