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

/** The secret or config that workloads and routes use. */
export interface UsedObject {
  readonly kind: FileKind;
  readonly namespace: string;
  readonly name: string;
}

/** Names of workloads, and of routes, in an error message at most. */
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

/** Returns the names of the routes that use a secret, ordered. Empty for a config. */
export function listRouteUses(view: ClusterView, { kind, namespace, name }: UsedObject): string[] {
  if (kind !== 'secrets') return [];
  const names: string[] = [];
  for (const { value } of view.routes())
    if (value.namespace === namespace && value.spec?.tls?.certificateSecret === name)
      names.push(value.name);
  return names.sort();
}

/**
 * Checks that nothing uses an object: no route, no spec of a workload, and no version of a workload
 * that has replicas or that a rollout may return to.
 * @throws reason STILL_USED, naming up to five workloads and five routes.
 */
export function requireUnused(view: ClusterView, object: UsedObject): void {
  const workloads: string[] = [];
  for (const { value } of view.workloads())
    if (value.namespace === object.namespace && isUsedBy(view, value, object))
      workloads.push(value.name);
  const routes = listRouteUses(view, object);
  if (workloads.length === 0 && routes.length === 0) return;
  const { kind, namespace, name } = object;
  const noun = toNoun(kind);
  const users: string[] = [];
  const steps: string[] = [];
  if (workloads.length > 0) {
    users.push(nameUsers('workload', workloads.sort()));
    steps.push(`remove the ${noun} from the workloads and wait for their rollouts`);
  }
  if (routes.length > 0) {
    users.push(nameUsers('route', routes));
    steps.push(`name another ${noun} in the routes, or remove their tls`);
  }
  throw new CloudlessError(
    'STILL_USED',
    `${noun} "${namespace}/${name}" is used by ${users.join(' and ')}; ${steps.join(', ')}, then delete the ${noun}`,
  );
}

/** Returns `workload a` or `workloads a, b and 7 others`, for error messages. */
export function nameUsers(noun: 'workload' | 'route', names: readonly string[]): string {
  const shown = names.slice(0, MAX_NAMES).join(', ');
  const others = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} others` : '';
  return `${names.length === 1 ? noun : `${noun}s`} ${shown}${others}`;
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
