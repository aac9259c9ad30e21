import { create } from '@bufbuild/protobuf';
import {
  Reload_Mode as Reload,
  WorkloadUseSchema,
  WorkloadUse_Effect as Effect,
  isRolledOut,
  resolveNamespace,
  type WorkloadSpec,
  type WorkloadUse,
} from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import { listFileRefs, toNoun, type ClusterView, type FileKind } from '@cloudless/cluster-state';

/** The secret or config that workloads use. */
export interface UsedObject {
  readonly kind: FileKind;
  readonly namespace: string;
  readonly name: string;
}

/** Names of workloads in an error message at most. */
const MAX_NAMES = 5;

/** Returns the workloads whose specs use an object, ordered by name. */
export function listUses(view: ClusterView, object: UsedObject, newest: number): WorkloadUse[] {
  const uses: WorkloadUse[] = [];
  for (const { value } of view.workloads()) {
    if (value.namespace !== object.namespace || value.spec === undefined) continue;
    const effect = findEffect(value.spec, object);
    if (effect === undefined) continue;
    const { namespace, name } = value;
    const version = findUsedVersion(view, value, object) || newest;
    uses.push(
      create(WorkloadUseSchema, {
        ...{ namespace, name, effect, version },
        rolledOut: isNewestRolledOut(view, value),
      }),
    );
  }
  return uses.sort((left, right) => (left.name < right.name ? -1 : 1));
}

/**
 * Checks that no workload uses an object: neither its spec nor a version that has replicas or that a
 * rollout may return to.
 * @throws reason STILL_USED, naming up to five workloads.
 */
export function requireUnused(view: ClusterView, object: UsedObject): void {
  const names: string[] = [];
  for (const { value } of view.workloads())
    if (value.namespace === object.namespace && isUsedBy(view, value, object))
      names.push(value.name);
  if (names.length === 0) return;
  names.sort();
  const shown = names.slice(0, MAX_NAMES).join(', ');
  const others = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} others` : '';
  const { kind, namespace, name } = object;
  throw new CloudlessError(
    'STILL_USED',
    `${toNoun(kind)} "${namespace}/${name}" is used by ${names.length === 1 ? 'workload' : 'workloads'} ${shown}${others}; remove the ${toNoun(kind)} from the workloads and wait for their rollouts, then delete the ${toNoun(kind)}`,
  );
}

/**
 * Returns the versions of an object that kept versions of workloads name, and which therefore are
 * kept too.
 */
export function listPinnedVersions(view: ClusterView, object: UsedObject): ReadonlySet<number> {
  const pinned = new Set<number>();
  for (const { value } of view.workloads()) {
    if (value.namespace !== object.namespace) continue;
    for (const { template } of view.versions(value.uid)) {
      const version = template === undefined ? 0 : findVersion(template, object);
      if (version !== undefined && version > 0) pinned.add(version);
    }
  }
  return pinned;
}

/**
 * Names the guard record of a namespace, which every change of a secret or config writes. Changes that
 * run one at a time under this name do not conflict at the guard.
 */
export function toFilesGuardName(request: { readonly namespace: string }): string {
  return `secrets and configs of namespace "${resolveNamespace(request)}"`;
}

/**
 * Returns the version number after which a new object begins: the highest number that kept versions
 * of workloads name for a deleted object of this name. They must not get the values of the new one.
 */
export function findLastUsedNumber(view: ClusterView, object: UsedObject): number {
  return Math.max(0, ...listPinnedVersions(view, object));
}

/** Returns what a new version does to a workload; undefined when the spec does not use the object. */
function findEffect(spec: WorkloadSpec, { kind, name }: UsedObject): Effect | undefined {
  const found = listFileRefs(spec).find((known) => known.kind === kind && known.ref.name === name);
  if (found === undefined)
    return isPullSecret(spec, { kind, name }) ? Effect.IMAGE_PULL : undefined;
  const { version, reload } = found.ref;
  if (version !== 0) return Effect.NOTHING;
  switch (reload?.mode ?? Reload.RESTART) {
    case Reload.RESTART:
      return Effect.ROLLOUT;
    case Reload.SIGNAL:
      return Effect.SIGNAL;
    case Reload.NONE:
      return Effect.FILES;
  }
}

/** Returns the version in the reference; undefined when the spec does not use the object. */
function findVersion(spec: WorkloadSpec, { kind, name }: UsedObject): number | undefined {
  const found = listFileRefs(spec).find((known) => known.kind === kind && known.ref.name === name);
  if (found !== undefined) return found.ref.version;
  return isPullSecret(spec, { kind, name }) ? 0 : undefined;
}

function isPullSecret(
  { imagePull }: WorkloadSpec,
  { kind, name }: Pick<UsedObject, 'kind' | 'name'>,
): boolean {
  return kind === 'secrets' && imagePull?.secret === name;
}

function findUsedVersion(view: ClusterView, workload: WorkloadRecord, object: UsedObject): number {
  const template = view.version(workload.uid, workload.version)?.template;
  return (template === undefined ? undefined : findVersion(template, object)) ?? 0;
}

function isNewestRolledOut(view: ClusterView, { uid, version }: WorkloadRecord): boolean {
  const control = view.control(uid)?.value;
  return control?.rollout?.version === version && isRolledOut(control.rolloutPhase);
}

function isUsedBy(view: ClusterView, workload: WorkloadRecord, object: UsedObject): boolean {
  if (workload.spec !== undefined && findVersion(workload.spec, object) !== undefined) return true;
  const active = view.control(workload.uid)?.value.activeVersion ?? 0;
  return view
    .versions(workload.uid)
    .some(
      ({ version, template }) =>
        version >= active && template !== undefined && findVersion(template, object) !== undefined,
    );
}
